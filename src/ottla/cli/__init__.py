"""The `ottla` command. Each subcommand is a module that is imported only when it is used."""
