# pyright: reportPrivateUsage=false
"""Name missing PySpark private APIs before a sink is opened (E113).

A vendor's Spark may carry the version of a line and lack some of its private APIs. So every use of a private API runs
under :func:`told`. Private APIs that only a later step of a batch uses are tried once by :func:`try_rows`, at the first
batch of a run.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceOnlyError, refuse
from onceonly.spark.classic import rows as jvmrows
from onceonly.spark.versions import SparkVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GONE = ("ClassNotFoundException", "NoClassDefFoundError", "NoSuchMethodError", "NoSuchFieldError")
"""What Java says of a class or a member that is not there."""

_METHOD = re.compile(r"(?:Method|Constructor) ([\w.$]+)\(")
_IN_JVM = re.compile(r"([\w.$]+) does not exist in the JVM")
_IMPORTED = re.compile(r"cannot import name '(\w+)'")


@contextmanager
def told(line: SparkVersion) -> Generator[None]:
    """Report a missing private API by its name.

    Raises:
        ConfigurationError: E113, this Spark lacks a call that its line has.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, AttributeError, ImportError) as error:
        if name := missing(error):
            raise lacking(line, name) from error
        raise


def lacking(line: SparkVersion, name: str) -> OnceOnlyError:
    """E113, for a Spark that lacks a call that its line has."""
    import pyspark

    return refuse(
        "E113",
        problem=f"PySpark {pyspark.__version__} here lacks {name}, which onceonly calls.",
        cause=f"a build whose insides are not those of Apache Spark {line.minor}: a vendor's fork, or a preview",
        next=f"run the query on Apache Spark {line.minor}, or on a runtime that has this call",
    )


def missing(error: Exception) -> str | None:
    """Return the name of the missing API from an error, or ``None`` for any other error."""
    from py4j.protocol import Py4JJavaError

    text = str(error)
    if isinstance(error, Py4JJavaError):
        java: Any = error.java_exception
        gone = str(java.getClass().getSimpleName()) in _GONE
        return str(java.getMessage()).replace("/", ".") if gone else None
    if isinstance(error, ImportError):
        found = _IMPORTED.search(text)
        return f"{error.name}.{found[1]}" if found else error.name
    if isinstance(error, AttributeError):
        return f"{type(error.obj).__name__}.{error.name}" if error.name else text
    for pattern in (_METHOD, _IN_JVM):
        if found := pattern.search(text):
            return found[1]
    return None


def try_rows(line: SparkVersion, df: DataFrame) -> None:
    """Collect no rows of a batch, observed like a real one: some 35 calls and a job without tasks.

    Discovery of the run uses its own private APIs. Reading a batch's rows and digest uses others. Without this try, a
    missing one would surface when sinks are open and an epoch has begun.

    Raises:
        ConfigurationError: E113, see :func:`told`.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import LongType, StructField, StructType

    with told(line):
        none = df.limit(0)
        seen = jvmrows.metrics(line, none, [f.count(f.lit(1)).alias("rows")])
        observed = jvmrows.Observation(line, line.frame(none._jdf, none.sparkSession), seen)
        try:
            line.arrow_schema(StructType([StructField("id", LongType())]))
            with closing(jvmrows.ArrowStream(line, observed.dataframe)) as batches:
                came = sum(batch.num_rows for batch in batches)
            right = came == observed.get()["rows"] == 0
        except (TypeError, ValueError, KeyError) as error:
            raise lacking(line, f"what brings rows to the driver as Arrow ({error})") from error
    if not right:
        raise lacking(line, "what brings rows to the driver as Arrow and counts them")
