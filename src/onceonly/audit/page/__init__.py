"""The audit page: one HTML file, offline, for whoever is called at night. Needs the extra ``report``."""

from onceonly.audit.page.render import LabRun, Taken, render, write

__all__ = ["LabRun", "Taken", "render", "write"]
