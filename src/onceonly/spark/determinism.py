"""Determinism of written rows, by the plan of the query."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.spark import fingerprint, float_lineage
from onceonly.spark.detect import engine_for
from onceonly.spark.engine import QueryPlan

if TYPE_CHECKING:
    from onceonly.protocol import DataFrame

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Determinism:
    """Findings in the plan of the written rows, once per run and columns.

    Attributes:
        left_out: columns that the digest omits, since another order of the same rows may change them. None where no
            state makes a batch run twice.
        nondeterministic: SQL of the first expression that another run may compute differently, in the query's plan or
            the callback's part, or ``None``.
        text: plan of the query and of the callback's part, spelled alike by every start of the same code. Empty if not
            visible.
    """

    left_out: frozenset[str] = frozenset()
    nondeterministic: str | None = None
    functions: tuple[str, ...] = ()
    text: str = ""


def look(plan: QueryPlan, rows: DataFrame) -> Determinism:
    """Inspect the plan of a written batch: a few hundred calls into the JVM, so not for each batch."""
    analysed = engine_for(rows).analysed(rows, started=True)
    text = analysed.text()
    unstable = plan.nondeterministic or analysed.nondeterministic()
    try:
        plans = (float_lineage.parse(plan.text), float_lineage.parse(text)) if plan.text and text else ()
        left_out = _left_out(plans, rows) if plan.stateful else frozenset[str]()
        spelled = fingerprint.spell(*plans, delays=plan.delays) if plans else ""
        return Determinism(left_out, unstable, float_lineage.functions(*plans), spelled)
    except RecursionError:
        log.info("the plan is nested too deeply to follow its columns")
        return Determinism(_left_out((), rows) if plan.stateful else frozenset(), unstable)


def foreseen(plan: QueryPlan, rows: DataFrame) -> Determinism:
    """Inspect the stream before the start, as ``before=`` leaves it. Floats are followed only in a batch."""
    analysed = engine_for(rows).analysed(rows, started=False)
    text = analysed.text()
    return Determinism(
        nondeterministic=plan.nondeterministic or analysed.nondeterministic(),
        functions=float_lineage.functions(float_lineage.parse(text)) if text else (),
    )


def _left_out(plans: tuple[float_lineage.Node, float_lineage.Node] | tuple[()], rows: DataFrame) -> frozenset[str]:
    """Return all columns with floats if they cannot be followed: no replay is refused for the order of its rows."""
    found = float_lineage.loose(*plans) if plans else None
    if found is not None:
        return found
    return frozenset(field.name for field in rows.schema if float_lineage.holds_float(field.dataType.jsonValue()))
