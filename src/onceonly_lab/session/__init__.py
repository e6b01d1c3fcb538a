"""Fast start of a Spark session after a crash.

``start`` uses the facts that ``prepare`` learned on this machine.

``prepare``, or ``onceonly lab prepare-session``, resolves the jars behind the packages and archives the classes.
"""

from onceonly_lab.session.archive import prepare
from onceonly_lab.session.launch import start

__all__ = ["prepare", "start"]
