"""The audit page: one HTML file, offline, for whoever is called at night. Needs the extra ``report``."""

from onceonly.audit.page.view import LabRun, render, write
from onceonly.page import Taken

__all__ = ["LabRun", "Taken", "render", "write"]
