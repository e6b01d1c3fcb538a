"""Define an ``Output(...)``: selected rows and columns for some sinks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.protocol import Sink
from onceonly.quality.spark_outputs import OutputSpec
from onceonly.spark.expression_check import text_of

if TYPE_CHECKING:
    from onceonly.quality.spark_outputs import Column

MOST = 16
"""How many outputs an epoch may have: each is a digest in every marker, and a column in what is staged."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_RESERVED = frozenset({"rows", "bad", "late", "panes", "state", "seen"})


@checks_arguments
@dataclass(frozen=True, slots=True, init=False)
class Output:
    """Selected rows and columns of each batch for some sinks, committed with all the rest as one epoch.

    Each row of the batch, after ``before=``, is in the output once or not at all. The others are counted. Flink and
    Beam call it a side output.

    Args:
        sinks: all of them hold the same.
        name: stable, unique in the call: markers and the ledger hold it.
        where: a condition on one row, in Spark SQL or as a Column. Null is no. Default: all rows.
        select: its columns, made of one row each, in Spark SQL (``"id AS key"``, ``"*"``) or as Columns. Default: all.

    Example:
        ``exactly_once(orders, Output(alerts, name="alerts", where="amount > 1000", select=["id", "amount"]))``
    """

    sinks: tuple[Sink, ...]
    name: str
    where: str | Column | None
    select: tuple[str | Column, ...]

    def __init__(
        self,
        *sinks: Sink,
        name: str,
        where: str | Column | None = None,
        select: Sequence[str | Column] | None = None,
    ) -> None:
        object.__setattr__(self, "sinks", sinks)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "where", where)
        if isinstance(select, str):
            raise _formless(f'select="{select}" of an output is one text', f'give a list: select=["{select}"]')
        object.__setattr__(self, "select", tuple(select or ()))

    def __repr__(self) -> str:
        said = [f"name={self.name!r}"]
        said += [f"where={self.where!r}"] if self.where is not None else []
        said += [f"select={[*self.select]!r}"] if self.select else []
        return f"Output({', '.join([*map(repr, self.sinks), *said])})"

    @property
    def wanted(self) -> OutputSpec:
        """Rows and columns that it selects from a batch."""
        said = f"where={self.where!r}" + (f", select={[*self.select]!r}" if self.select else "")
        return OutputSpec(self.name, tuple(sink.id for sink in self.sinks), self.where, self.select, said=said)

    @property
    def text(self) -> str:
        """Its selection in words."""
        condition = f"the rows where {text_of(self.where)}" if self.where is not None else "every row"
        columns = f", as {', '.join(map(text_of, self.select))}" if self.select else ""
        return condition + columns


def check(outputs: Sequence[Output]) -> None:
    """Refuse outputs that form no epoch.

    Raises:
        ConfigurationError: E120.
    """
    if len(outputs) > MOST:
        way = "write the others by a second pipeline, with a name and a checkpoint of its own"
        raise _formless(f"there are {len(outputs)} outputs, and {MOST} is the most", way)
    names = [output.name for output in outputs]
    for output in outputs:
        if problem := unusable(output.name):
            raise _formless(problem, f'give a name of letters and digits: name="{named_after(output.name)}"')
        if [name.lower() for name in names].count(output.name.lower()) > 1:
            other = f'Output(sink, name="{output.name}_2")'
            way = (
                f'give one of them another: {other}, in a Route {{"{output.name}": {other}}}; or one output both sinks'
            )
            raise _formless(f'two outputs are called "{output.name}"', way)
        if not output.sinks:
            raise _formless(f'output "{output.name}" has no sink', f'give it one: Output(sink, name="{output.name}")')


def unusable(name: object) -> str:
    """Return why a name is unusable for outputs, or empty if it is usable."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} names no output"
    return f'"{name}" is what onceonly calls an output of its own' if name.lower() in _RESERVED else ""


def named_after(value: object) -> str:
    """Return a usable output name close to an unusable one."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(value)).strip("_")[:40]
    name = name if name[:1].isalpha() else f"of_{name or 'rows'}"
    return f"{name}_rows" if unusable(name) else name


def _formless(problem: str, way: str) -> Exception:
    return refuse("E120", problem=problem, next=way)
