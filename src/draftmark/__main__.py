"""``python -m draftmark``."""

from draftmark.cli import main

if __name__ == "__main__":
    main()
