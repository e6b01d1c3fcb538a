"""What a query's callback writes, as far as its plan tells: what another run of the same batch may give otherwise."""

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
    """What is found of the plan of the written rows, once per run and columns.

    Attributes:
        left_out: columns that the digest leaves out, since another order of the same rows may change them; none where
            no state makes a batch run twice.
        nondeterministic: SQL of the first expression, of the query's plan or of what the callback adds to it, that
            another run may compute otherwise; ``None`` if there is none.
        functions: names of the user's own functions, into which nobody can look.
        text: the plan of the query and of what the callback adds to it, as every start of the same code spells them;
            empty where they cannot be seen.
    """

    left_out: frozenset[str] = frozenset()
    nondeterministic: str | None = None
    functions: tuple[str, ...] = ()
    text: str = ""


def look(plan: QueryPlan, rows: DataFrame) -> Determinism:
    """Look at what is written: a few hundred calls into the JVM, so not for each batch."""
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
    """What is known of the rows that a query will write: less than of a batch, whose floats are followed.

    Args:
        plan: of the query, which is not started yet.
        rows: the stream as ``before=`` leaves it.
    """
    analysed = engine_for(rows).analysed(rows, started=False)
    text = analysed.text()
    return Determinism(
        nondeterministic=plan.nondeterministic or analysed.nondeterministic(),
        functions=float_lineage.functions(float_lineage.parse(text)) if text else (),
    )


def _left_out(plans: tuple[float_lineage.Node, float_lineage.Node] | tuple[()], rows: DataFrame) -> frozenset[str]:
    """Where columns cannot be followed, all that hold floats: no replay is refused for the order of its rows."""
    found = float_lineage.loose(*plans) if plans else None
    if found is not None:
        return found
    return frozenset(field.name for field in rows.schema if float_lineage.holds_float(field.dataType.jsonValue()))
