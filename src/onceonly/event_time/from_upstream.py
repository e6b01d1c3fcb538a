"""``FromUpstream``: carry event time on from the dataset that is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from onceonly.errors import refuse
from onceonly.errors.arguments import checks_arguments
from onceonly.protocol import Feeds, Shared, Sink
from onceonly_checkpoints.epoch_time import Unit


@checks_arguments
@dataclass(frozen=True, slots=True)
class FromUpstream:
    """Event time from the table or topic that the query reads, so that chained queries declare disorder once.

    Each epoch notes the completeness of the upstream dataset at the end of the epoch's slice. Anything beyond that
    position counts for later epochs. It is read once for each epoch, from markers, without a fence. If the upstream
    cannot be read, the noted time stays, and an event records that. A replay may read more than the first attempt,
    never less. A committed epoch is not read again.

    The time covers rows that the query reads of the upstream. It does not cover rows before the query's start, rows
    that it filters out, or a second source.

    Args:
        sink: writer of the upstream on the target that the query's source reads: ``DeltaSink(path)``, or
            ``KafkaSink(servers, topic)``. Its own object, which no query writes with.
        name: pipeline that writes it, or any of them if they are one dataset. A Delta table shows its writers. Without
            a name it is complete through the least that they noted. A topic needs the name.
        unit: of the upstream's numbers, ``"ms"`` or ``"integer"``.

    Raises:
        ConfigurationError: E110, a topic without a name. E132, a sink whose target no stream reads.

    Example:
        ``exactly_once(sink, note_time=FromUpstream(DeltaSink("/tables/clicks")))``
    """

    sink: Sink
    name: str | None = field(default=None, kw_only=True)
    unit: Unit = field(default="ms", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.sink, Sink):  # pyright: ignore[reportUnnecessaryIsInstance]
            wanted = 'a sink on what the query reads: FromUpstream(DeltaSink("/tables/clicks"))'
            raise _meaningless(f"FromUpstream({self.sink!r})", wanted)
        if self.unit not in ("ms", "integer"):
            raise _meaningless(f"FromUpstream(unit={self.unit!r})", 'unit="ms" or unit="integer"')
        if not isinstance(self.sink, Feeds):
            raise refuse(
                "E132",
                problem=f"no stream reads what {type(self.sink).__name__} writes by offsets that its epochs lie at",
                cause="the upstream is written to several sinks, and another one of them is read",
                next='name the one that the query\'s source reads: FromUpstream(DeltaSink("/tables/clicks"))',
            )
        if self.name is None and not isinstance(self.sink, Shared):
            given = f"FromUpstream({type(self.sink).__name__}(...)) without a name"
            raise _meaningless(given, 'the name of the pipeline that writes there: FromUpstream(sink, name="clicks")')

    @property
    def words(self) -> str:
        """What is noted, as part of a sentence."""
        by = f", by the word of {self.name}" if self.name else ""
        return f"what {self.sink.id} was complete through where the epoch's slice ends{by}"


def _meaningless(given: str, wanted: str) -> Exception:
    return refuse("E110", problem=f"{given} is not understood.", cause=f"it takes {wanted}", next=f"give {wanted}")
