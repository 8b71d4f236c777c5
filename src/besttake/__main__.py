"""``python -m besttake`` is the command line."""

from besttake.cli import main

if __name__ == "__main__":
    main()
