"""``python -m onceonly.lab.demo``."""

import sys

from onceonly.lab.demo.command import main

raise SystemExit(main(sys.argv[1:]))
