"""The lab's report: recorded runs as one offline page.

The verdict comes first. Needs the extra ``report``.
"""

from onceonly_lab.report.view import Run, render, run_of, write

__all__ = ["Run", "render", "run_of", "write"]
