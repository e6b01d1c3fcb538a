"""``python -m onceonly``: the command line without a script directory."""

from onceonly.cli import main

main()
