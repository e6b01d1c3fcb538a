"""Render the audit page as one offline HTML file. Extra ``report``."""

from onceonly.audit.page.view import LabRun, render, write
from onceonly.page import Taken

__all__ = ["LabRun", "Taken", "render", "write"]
