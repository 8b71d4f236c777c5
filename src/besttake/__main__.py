"""``python -m besttake`` is the command line."""

from typing import NoReturn

from besttake.cli.interrupt import end_at_once


def main() -> NoReturn:
    """Entry point: load the command line and run it."""
    end_at_once()
    from besttake.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
