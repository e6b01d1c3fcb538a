"""The lab's report: recorded runs as one offline page, verdict first. Needs the extra ``report``."""

from onceonly.lab.report.render import render, write
from onceonly.lab.report.run import Run, run_of

__all__ = ["Run", "render", "run_of", "write"]
