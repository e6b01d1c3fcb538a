"""Which epochs of another pipeline an epoch runs again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly_checkpoints.model import known

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class ReplayedEpochs:
    """Epochs in a row whose input an epoch has read again.

    Attributes:
        pipeline: whose they are.
        first: the first of them.
        last: the last one.
        chain: chain of the last: two histories in which anything differs up to there have other ones.
    """

    pipeline: str
    first: int
    last: int
    chain: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        known(value, "pipeline", "epochs", "chain")
        return cls(value["pipeline"], value["epochs"][0], value["epochs"][1], value["chain"])

    def to_json(self) -> dict[str, Any]:
        """``epochs`` is ``[first, last]``."""
        return {"pipeline": self.pipeline, "epochs": [self.first, self.last], "chain": self.chain}

    @property
    def text(self) -> str:
        """``epoch 7 of orders``, ``epochs 7..9 of orders``."""
        which = f"epoch {self.first}" if self.first == self.last else f"epochs {self.first}..{self.last}"
        return f"{which} of {self.pipeline}"
