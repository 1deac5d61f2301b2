"""`python -m albertkit` is the `albertkit` command."""

from albertkit.cli.main import run

if __name__ == "__main__":
    run()
