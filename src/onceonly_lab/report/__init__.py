"""The lab's report: recorded runs as one offline page, verdict first. Needs the extra ``report``."""

from onceonly_lab.report.render import render, write
from onceonly_lab.report.run import Run, run_of

__all__ = ["Run", "render", "run_of", "write"]
