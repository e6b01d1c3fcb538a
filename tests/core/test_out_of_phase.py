"""What a phase works on is in the state's types and in the commands; what is not there is named, with the phase."""

import ast
from pathlib import Path

import pytest

from onceonly.machine import coordinator
from onceonly.machine.facts import BatchFacts, OutOfPhase
from onceonly.machine.state import Job, Opening, Phase, State, Work
from onceonly_checkpoints.epoch import Fence

LIBRARY = Path(__file__).parents[2] / "src/onceonly"

BARE = State(Phase.PROBE, Job("orders", ("memory",), "us"), Opening(Fence(1, "us")))
"""A state that has reached nothing yet."""


PACKAGES = ("machine", "spark", "runtime", "reading", "event_time", "quality", "windows", "api", "replay")
NARROWED = {"triggers.py: isinstance(trigger, AtWatermark)", "rerun_windows.py: chosen is not None"}
"""Said for the type checker: the caller has asked ``merges``; what is chosen from given windows is there."""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_asserts(package):
    modules = sorted((LIBRARY / package).rglob("*.py"))
    assert modules
    asserts = {
        f"{module.name}: {ast.unparse(node.test)}"
        for module in modules
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    }
    assert asserts - NARROWED == set()


@pytest.mark.parametrize(
    ("phase", "what"),
    [
        (Phase.RECOLLECT, "a batch"),
        (Phase.GATHER, "an epoch before"),
        (Phase.INTEND, "a batch"),
        (Phase.FETCH, "an epoch"),
        (Phase.STAGE, "a batch"),
        (Phase.COMMIT, "an epoch"),
        (Phase.RECORD, "an epoch"),
        (Phase.REFUSED, "a reason"),
    ],
)
def test_a_phase_without_what_it_works_on_is_named(phase, what):
    state = State(phase, BARE.job, BARE.opening, Work(number=1))
    with pytest.raises(OutOfPhase, match=rf"phase {phase.value} was reached without {what}: this is a bug"):
        coordinator.next(state)


def test_a_rule_that_is_asked_without_an_epoch_before_says_so():
    facts = BatchFacts("orders", "memory", None, BARE.job.offer)
    with pytest.raises(OutOfPhase, match="phase compare was reached without an epoch before the batch"):
        _ = facts.newest
