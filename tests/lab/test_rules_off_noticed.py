"""A process without some rules of the product says what a world shows of that; with all of them it shows nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from onceonly_lab.rulesoff import rules as rulesoff
from onceonly_lab.rulesoff.drawn import played as played_of_facts

CHILD = Path(rulesoff.__file__).with_name("child.py")


def seen(names: str, world: str, *place: str) -> list[dict[str, str]]:
    line = [sys.executable, str(CHILD), names, world, *place]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=300, check=True)
    found: list[dict[str, str]] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("world", ["scenes", pytest.param("restored-one", marks=pytest.mark.lab)])
def test_the_product_with_all_its_rules_breaks_nothing(world: str):
    assert seen("", world) == []


@pytest.mark.parametrize(
    ("rule", "noticed"),
    [
        ("rewind._cut_back#3", "X-LOSS"),  # the source lacks rows that a cut back reads again
        ("publish.replayed#6", "X-LOSS"),  # the target holds something else
        ("publish._behind#5", "X-LOSS"),  # the pipeline went on
    ],
)
def test_a_rule_of_a_table_is_noticed_by_drawn_facts_and_at_the_same_place_again(rule: str, noticed: str):
    (found,) = seen(rule, "drawn facts")
    assert found["noticed"] == noticed
    assert list(played_of_facts(found["at"])) == [(found["at"], "")]
    assert seen(rule, "drawn facts", found["at"]) == [found]


def test_a_sink_that_is_healed_for_ever_is_noticed_where_a_destination_holds_nothing():
    assert seen("transitions._heal#1", "refusing")[0]["noticed"] == "X-STUCK"


def test_a_rule_that_another_stands_in_for_is_noticed_beside_it():
    both = "transitions._looked#1,transitions._read_one#1"
    assert [one["at"] for one in seen(both, "scenes")] == ["markers_of_another_pipeline"]
    assert not any(seen(name, "scenes") for name in both.split(","))
