"""``python -m besttake`` is the command line."""

from besttake.cli.main import main

if __name__ == "__main__":
    main()
