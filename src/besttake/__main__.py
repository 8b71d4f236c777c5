"""Run the command line with ``python -m besttake``."""

from typing import NoReturn

from besttake.cli.interrupt import end_at_once, leave


def main() -> NoReturn:
    """Entry point: load the command line, run it, and end the process."""
    end_at_once()
    from besttake.cli.main import main as run

    try:
        run()
    except SystemExit as end:
        leave(end.code)


if __name__ == "__main__":
    main()
