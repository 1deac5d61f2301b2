"""Run the `albertkit` command with `python -m albertkit`."""

from albertkit.cli.main import run

if __name__ == "__main__":
    run()
