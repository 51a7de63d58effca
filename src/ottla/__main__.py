"""`python -m ottla` is the `ottla` command."""

from ottla.cli.main import run

if __name__ == "__main__":
    run()
