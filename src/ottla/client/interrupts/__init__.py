"""The rare cases that every client must survive: signals, forks, exits, and event loops that end under it."""
