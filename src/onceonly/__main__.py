"""``python -m onceonly``: the command line, where no script directory is on the path."""

from onceonly.cli import main

main()
