"""``python -m onceonly_lab.demo``."""

import sys

from onceonly_lab.demo.command import main

raise SystemExit(main(sys.argv[1:]))
