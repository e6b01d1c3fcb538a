"""How fast a killed driver is back: ``start`` begins a Spark session from what this machine has learned before.

``prepare``, or ``onceonly session prepare``, makes it learn: the jars behind the packages, and an archive of classes.
"""

from onceonly.spark.session.preparing import prepare
from onceonly.spark.session.starting import start

__all__ = ["prepare", "start"]
