"""Parse the text of ``explain(True)``: all that Spark Connect shows. Pure.

The text is made for people. It names operators and expressions. It shows neither which expressions Spark considers
deterministic nor the effect of a user's function. :data:`UNSEEN` reports that where it affects the guarantee.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

CUT = re.compile(r"\.\.\. \d+ more fields")
"""How Spark ends a list that it did not print whole."""

_STATE = re.compile(r"StateStore|state info \[")
"""What the operators that keep state print, whatever they are called."""

_UNPLANNED = "AnalysisException"
"""What Spark prints for the physical plan of some streams that are not started, such as one read by a view's name."""

_KEEPS_STATE = re.compile(r"~?(Aggregate|Distinct|GlobalLimit|\w*Deduplicate\w*|\w*WithState\w*)\b")
"""Logical operators that keep state; the mark before them is that of a stream, which some Sparks print."""

_BRANCHES = " :+-"
"""What draws the tree before the name of an operator."""

_SECTION = re.compile(r"^== (.+) ==$", re.MULTILINE)
_ANALYSED = "Analyzed Logical Plan"

_UNSTABLE = (
    "current_time",
    "input_file_block_length",
    "input_file_block_start",
    "input_file_name",
    "java_method",
    "localtime",
    "monotonically_increasing_id",
    "now",
    "rand",
    "randn",
    "random",
    "randstr",
    "reflect",
    "shuffle",
    "spark_partition_id",
    "try_reflect",
    "uniform",
    "uuid",
)
"""Functions that another run may compute otherwise, by the names under which a plan spells them."""

_CLOCKS = ("current_date", "current_timestamp", "localtimestamp")
"""The same in the callback's own part of a plan. In the query's part Spark puts the batch's time for them."""

UNSEEN = (
    "a function of your own gives something else for the same rows: on Spark Connect its calls cannot be seen",
    "a source goes on where input is gone (failOnDataLoss=false, ignoreMissingFiles): on Spark Connect it does not say",
)
"""What a text does not show, as reasons for which a promise may not hold."""

TOPICS_UNSEEN = "a topic is made anew under its name: on Spark Connect nobody asks the brokers which one it is"
"""The same of a plan that reads topics."""


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan by its text. With ``clocks``, functions that read a clock count as nondeterministic."""

    all: str
    clocks: bool = False

    @property
    def stateful(self) -> bool:
        """Whether an operator keeps state."""
        if _STATE.search(self.all) or _UNPLANNED not in self.all:
            return _STATE.search(self.all) is not None
        return any(_KEEPS_STATE.match(line.lstrip(_BRANCHES)) for line in self.analysed.splitlines())

    @property
    def cut(self) -> bool:
        """Whether Spark omitted a part."""
        return CUT.search(self.all) is not None

    @property
    def analysed(self) -> str:
        """The analysed plan, without the line of its columns, or the whole text without such a part."""
        parts = _SECTION.split(self.all)
        found = dict(zip(parts[1::2], parts[2::2], strict=True)).get(_ANALYSED)
        return self.all if found is None else found.lstrip("\n").partition("\n")[2]

    def text(self) -> str | None:
        """Return ``None``: Connect has no plan in JSON by which to trace columns."""
        return None

    def nondeterministic(self) -> str | None:
        """Return the first expression that another run may compute differently, or ``None``."""
        names = (*_UNSTABLE, *(_CLOCKS if self.clocks else ()))
        return next(_calls(self.analysed, names), None)

    @property
    def relations(self) -> tuple[str, ...]:
        """Lines of the sources of a stream before its start."""
        lines = (line.lstrip(f"{_BRANCHES}~") for line in self.analysed.splitlines())
        return tuple(line for line in lines if line.startswith("StreamingRelation"))


def _calls(text: str, names: tuple[str, ...]) -> Iterator[str]:
    """Yield calls of functions, with their arguments. Column names are not calls."""
    for found in re.finditer(rf"(?<![\w.`'])({'|'.join(names)})\(", text):
        end = _closing(text, found.end())
        # A column is spelled with its number behind the name: ``rand(7)#3`` is what some table calls one.
        if text[end : end + 1] != "#":
            yield text[found.start() : end]


def _closing(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one before ``at``."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at
