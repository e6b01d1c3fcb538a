"""Tries each rule: alone in one world after the other, then with each other rule that no world missed either."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onceonly.lab.rulesoff.rules import Rule, rules
from onceonly.lab.rulesoff.worlds import WORLDS

RECORDED = Path(__file__).with_name("noticed.json")
"""What was found last, by name of the rule."""

_CHILD = Path(__file__).with_name("child.py")
_QUICK = WORLDS[:5]
_SECONDS = WORLDS[:2]
_LONGEST = 900


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a rule that was off.

    Attributes:
        rule: its name.
        fingerprint: of its text.
        world: that noticed it first; empty: none did.
        noticed: what was called there.
        first: the first schedule, or the length of the shortest way there.
        beside: the other rule that had to be off, too; empty: none.
    """

    rule: str
    fingerprint: str
    world: str = ""
    noticed: str = ""
    first: str = ""
    beside: str = ""

    def to_json(self) -> dict[str, str]:
        """Field names to values."""
        return asdict(self)


def recorded() -> dict[str, Trial]:
    """What was found last."""
    if not RECORDED.is_file():
        return {}
    return {one["rule"]: Trial(**one) for one in json.loads(RECORDED.read_text(encoding="utf-8"))}


def record(trials: Sequence[Trial]) -> None:
    """Keep what was found; rules that are no more are forgotten."""
    known = {**recorded(), **{one.rule: one for one in trials}}
    kept = [known[rule.name].to_json() for rule in rules() if rule.name in known]
    RECORDED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def chosen(only: Sequence[str], *, changed: bool, count: int | None, seed: int) -> tuple[Rule, ...]:
    """The rules to try: those named; else those whose text is not the recorded one, and some by seed; else all."""
    every = rules()
    if only:
        return tuple(rule for rule in every if rule.name in only)
    if not changed and count is None:
        return every
    known = recorded()
    texts = {name: trial.fingerprint for name, trial in known.items()}
    new = [rule for rule in every if changed and texts.get(rule.name) != rule.fingerprint]
    rest = [rule for rule in every if rule not in new]
    drawn = random.Random(seed).sample(rest, min(count or 0, len(rest)))
    return tuple(rule for rule in every if rule in drawn or rule in new)


def tried(wanted: Sequence[Rule], told: Callable[[str], None], *, quick: bool = False, workers: int = 2) -> list[Trial]:
    """Try rules, several side by side; ``quick``: in the worlds that take seconds, and each alone."""
    with ThreadPoolExecutor(workers) as pool:
        alone = list(pool.map(lambda rule: _alone(rule, told, _SECONDS if quick else WORLDS), wanted))
        if quick:
            return alone
        missed = {trial.rule for trial in alone if not trial.noticed} | _missed_before(wanted)
        by_name = {rule.name: rule for rule in rules()}
        return list(pool.map(lambda one: one if one.noticed else _beside(one, by_name, missed, told), alone))


def _missed_before(wanted: Sequence[Rule]) -> set[str]:
    names = {rule.name for rule in wanted}
    return {one.rule for one in recorded().values() if one.rule not in names and (one.beside or not one.noticed)}


def _alone(rule: Rule, told: Callable[[str], None], among: Sequence[str]) -> Trial:
    known = recorded().get(rule.name)
    worlds = sorted(among, key=lambda one: one != (known.world if known else "")) if known else list(among)
    trial = _first((rule.name,), worlds, Trial(rule.name, rule.fingerprint))
    told(f"{rule.name}: {trial.noticed or 'not noticed alone'} {trial.world}")
    return trial


def _beside(trial: Trial, by_name: Mapping[str, Rule], missed: set[str], told: Callable[[str], None]) -> Trial:
    ours = by_name[trial.rule]
    for name in sorted(missed - {ours.name}):
        if not by_name[name].fields & ours.fields:
            continue
        both = _first((ours.name, name), _QUICK, Trial(ours.name, ours.fingerprint, beside=name))
        if both.noticed:
            told(f"{ours.name} with {name}: {both.noticed} {both.world}")
            return both
    return trial


def _first(names: tuple[str, ...], worlds: Sequence[str], trial: Trial) -> Trial:
    for world, found in ((world, _searched(names, world)) for world in worlds):
        if found["noticed"] and found["noticed"] != "INCOMPLETE":
            return Trial(trial.rule, trial.fingerprint, world, found["noticed"], found["first"], trial.beside)
    return trial


def _searched(names: tuple[str, ...], world: str) -> dict[str, Any]:
    line = [sys.executable, str(_CHILD), ",".join(names), world]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=_LONGEST, check=False)
    if ran.returncode:
        return {"noticed": "it does not start", "first": ran.stderr.strip().splitlines()[-1][:200]}
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def table(trials: Sequence[Trial]) -> Iterator[str]:
    """The table of the documentation, as Markdown."""
    yield "| rule | off beside | noticed by | called | first |"
    yield "|---|---|---|---|---|"
    for one in trials:
        first = one.first.replace("|", "/")
        yield f"| `{one.rule}` | {one.beside and f'`{one.beside}`'} | {one.world or 'none'} | {one.noticed} | {first} |"
