"""A manifest that is damaged is called unreadable, whatever is wrong with it."""

from __future__ import annotations

import json

import pytest

from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.manifest import FORMAT, Manifest, UnreadableManifest
from onceonly_checkpoints.model import Slice, SourceOffsets

NOWHERE = SourceOffsets(())
WHOLE = Manifest("orders", (("a", "memory:a"),), 1, 1, Slice(NOWHERE, NOWHERE), Digest(0), "schema", ())


def test_a_manifest_comes_back_from_its_text() -> None:
    assert Manifest.parse(WHOLE.text) == WHOLE


@pytest.mark.parametrize(
    "change",
    [
        {"sinks": [["a"]]},
        {"epoch": None, "sinks": 3},
        {"digest": {}},
        {"files": [["x"]]},
        {"format": FORMAT + 1},
        {"new": 1},
    ],
    ids=str,
)
def test_whatever_is_wrong_with_a_manifest_is_said_as_one_error(change: dict[str, object]) -> None:
    with pytest.raises(UnreadableManifest):
        Manifest.parse(json.dumps({**json.loads(WHOLE.text), **change}))


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_manifest_at_all_is_said_so_too(text: str) -> None:
    with pytest.raises(UnreadableManifest):
        Manifest.parse(text)
