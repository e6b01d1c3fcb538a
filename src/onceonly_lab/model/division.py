"""Divide a batch's rows among quarantine and outputs.

Bad rows are set aside. Each output selects good ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceonly_checkpoints.digests import Digest, OutputDigest
from onceonly_lab.model.parts import Records, picked, set_aside


@dataclass(frozen=True, slots=True)
class Division:
    """Outputs and expectations of one call; as it stands here, all sinks get all rows.

    Attributes:
        wanted: records that the output wants, if they are good.
        pickers: sinks that get the output.
        bad: records that break an expectation.
        quarantine: the sink that gets those; empty: nothing is expected.
    """

    wanted: Records = 0
    pickers: tuple[str, ...] = ()
    bad: Records = 0
    quarantine: str = ""

    def of(self, content: Digest) -> tuple[Digest, tuple[OutputDigest, ...]]:
        """What all sinks get of rows, and what some of them."""
        aside: tuple[OutputDigest, ...] = ()
        if self.quarantine:
            content, bad = set_aside(content, self.bad, self.quarantine)
            aside = (bad,)
        return content, (*((picked(content, self.wanted, *self.pickers),) if self.pickers else ()), *aside)


UNDIVIDED = Division()
"""All sinks get all rows."""
