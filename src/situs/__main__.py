"""``python -m situs``: the command line, where the script ``situs`` is not on the path."""

import sys

from situs.cli import main

if __name__ == "__main__":
    sys.exit(main())
