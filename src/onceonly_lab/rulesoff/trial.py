"""Try each rule by switching it off.

It is tried in the worlds that may notice it, then together with rules that may take its place.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

from onceonly_lab.rulesoff.rules import Rule, rules

# ---- The worlds in which a rule that is off may be noticed, the quickest first, and what one of them shows.

SCHEDULES = 1000
"""Random schedules that are played for each rule."""

SCENES = "scenes"
FACTS = "drawn facts"
RANDOM = "random schedules"

WORLDS = (
    SCENES,
    FACTS,
    RANDOM,
    "restored-one",
    "pair",
    "misuse",
    "conflicts",
    "restored",
    "refusing",
    "operator-files",
    "begins",
    "begins-files",
    "checkpoint",
    "sinks",
)
"""Scenes, drawn facts, random schedules, and bounds by name."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One way in which a world shows that a rule is missing.

    Attributes:
        at: the scene, the case, the seed; empty in a bound, of which only the shortest way is told.
        noticed: what was called: ``X-LOSS``, or the name of an error that no user should see.
        words: the evidence.
    """

    at: str
    noticed: str
    words: str

    def to_json(self) -> dict[str, str]:
        """Field names to values."""
        return asdict(self)


def searched(world: str, case_id: str = "") -> Iterator[Notice]:
    """Everything that a world shows, one after the other; who has enough stops asking.

    Args:
        world: one of :data:`WORLDS`.
        case_id: the scene, case or seed to look at; empty: all.
    """
    looks = {SCENES: _scenes, FACTS: _facts, RANDOM: _random}.get(world)
    return looks(case_id) if looks else _bound(world)


def broke(error: Exception) -> str:
    """Where a machine breaks for want of a rule."""
    where = traceback.extract_tb(error.__traceback__)[-1].name
    return f"{str(error)[:200] or 'breaks'} in {where}"


def _scenes(case_id: str) -> Iterator[Notice]:
    from onceonly_lab.rulesoff.scenes import played

    return _shown(played(case_id))


def _facts(case_id: str) -> Iterator[Notice]:
    from onceonly_lab.rulesoff.drawn import played

    return _shown(played(case_id))


def _shown(played: Iterable[tuple[str, str | Exception]]) -> Iterator[Notice]:
    for name, wrong in played:
        if isinstance(wrong, Exception):
            yield Notice(name, type(wrong).__name__, broke(wrong))
        elif wrong:
            noticed, _, words = wrong.partition(": ")
            yield Notice(name, noticed, words)


def _random(case_id: str) -> Iterator[Notice]:
    from onceonly_lab.fuzzer.draw import draw
    from onceonly_lab.fuzzer.world import play
    from onceonly_lab.play.many import broken

    for seed in (int(case_id),) if case_id else range(1, SCHEDULES + 1):
        try:
            run = play(draw(seed))
            name = broken(run)
        except Exception as error:  # noqa: BLE001 - a machine that breaks for want of a rule has noticed it
            yield Notice(str(seed), type(error).__name__, broke(error))
            continue
        if name is not None:
            yield Notice(str(seed), str(name), run.violation.words if run.violation else "by its history")


def _bound(world: str) -> Iterator[Notice]:
    from onceonly_lab.explorer.bounds import BOUNDS
    from onceonly_lab.explorer.search import search

    try:
        exploration = search(BOUNDS[world], 240)
    except Exception as error:  # noqa: BLE001 - as above
        yield Notice("", type(error).__name__, broke(error))
        return
    if exploration.violation is not None:
        yield Notice(
            "", str(exploration.violation.name), f"{len(exploration.story) - 1} steps: {exploration.violation.words}"
        )
    elif not exploration.complete:
        yield Notice("", INCOMPLETE, "")


INCOMPLETE = "INCOMPLETE"
"""What is said of a bound that was not searched to its end: nothing."""


# ---- Tries each rule: alone in one world after the other, then beside each rule that may stand in for it.

RECORDED = Path(__file__).with_name("noticed.json")
"""What was found last, by name of the rule."""

_CHILD = Path(__file__).with_name("child.py")
_QUICK = (WORLDS[:3],)
_ALL = (WORLDS[:9], WORLDS[9:])
"""Worlds that take seconds, and those that take minutes; a rule is tried beside others before it is in the latter."""

_LONGEST = 900
_LOCK = Lock()


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a rule that was off.

    Attributes:
        rule: its name.
        fingerprint: of its text, and of that of ``beside``.
        world: that noticed it first; empty: none did.
        noticed: what was called there.
        at: the scene, the case or the seed; empty for a bound.
        first: the evidence in words; in a bound with the length of the shortest way there.
        beside: the other rule that had to be off, too, and is not noticed there alone; empty: none.
    """

    rule: str
    fingerprint: str
    world: str = ""
    noticed: str = ""
    at: str = ""
    first: str = ""
    beside: str = ""

    def to_json(self) -> dict[str, str]:
        """Field names to values."""
        return asdict(self)


def recorded() -> dict[str, Trial]:
    """What was found last."""
    if not RECORDED.is_file():
        return {}
    return {load["rule"]: Trial(**load) for load in json.loads(RECORDED.read_text(encoding="utf-8"))}


def record(trials: Sequence[Trial]) -> None:
    """Keep what was found; rules that are no more are forgotten."""
    with _LOCK:
        trials_by_rule = {**recorded(), **{trial.rule: trial for trial in trials}}
        documents = [trials_by_rule[rule.name].to_json() for rule in rules() if rule.name in trials_by_rule]
        RECORDED.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")


def changed(every: Sequence[Rule]) -> list[Rule]:
    """The rules whose text, or that of the rule beside them, is not the recorded one."""
    texts, trials_by_rule = {rule.name: rule.fingerprint for rule in every}, recorded()
    return [
        rule
        for rule in every
        if _fingerprint(rule, trials_by_rule.get(rule.name), texts) != _recorded_one(rule, trials_by_rule)
    ]


def _recorded_one(rule: Rule, trials_by_rule: Mapping[str, Trial]) -> str:
    return trials_by_rule[rule.name].fingerprint if rule.name in trials_by_rule else "never tried"


def _fingerprint(rule: Rule, trial: Trial | None, texts: Mapping[str, str]) -> str:
    return " ".join([rule.fingerprint, *([texts.get(trial.beside, "gone")] if trial and trial.beside else [])])


def chosen(only: Sequence[str], *, new: bool, count: int | None, seed: int) -> tuple[Rule, ...]:
    """The rules to try: those named; else those whose text is not the recorded one, and some by seed; else all."""
    every = rules()
    if only:
        return tuple(rule for rule in every if rule.name in only)
    if not new and count is None:
        return every
    other = changed(every) if new else []
    rest = [rule for rule in every if rule not in other]
    drawn = random.Random(seed).sample(rest, min(count or 0, len(rest)))
    return tuple(rule for rule in every if rule in drawn or rule in other)


def tried(
    selected: Sequence[Rule],
    progress: Callable[[str], None],
    *,
    quick: bool = False,
    workers: int = 2,
    keep: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Try rules, several side by side.

    Args:
        selected: the rules.
        progress: hears of each as soon as it is known.
        quick: where each was noticed last, and else in the worlds that take seconds.
        workers: how many at a time.
        keep: gets each trial as soon as it is known.
    """
    every = rules()

    def one(rule: Rule) -> Trial:
        trial = (quick and _again(rule, every)) or _tried(rule, every, progress, _QUICK if quick else _ALL)
        suffix = f" beside {trial.beside}" if trial.beside else ""
        progress(
            f"{rule.name}{suffix}: {f'{trial.noticed} in {trial.world} {trial.at}' if trial.noticed else 'not noticed'}"
        )
        keep(trial)
        return trial

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, selected))


def _again(rule: Rule, every: Sequence[Rule]) -> Trial | None:
    """The same rule where it was noticed last; ``None`` where that is not known, or it is not noticed any more."""
    trial = recorded().get(rule.name)
    if trial is None or not trial.noticed or trial.beside not in {"", *(candidate.name for candidate in every)}:
        return None
    names = tuple(filter(None, (rule.name, trial.beside)))
    notices = _asked(names, trial.world, trial.at, most=1)
    if not notices or (trial.beside and _stands_alone(trial.beside, trial.world, notices[0])):
        return None
    texts = {candidate.name: candidate.fingerprint for candidate in every}
    return _trial(rule, trial.world, notices[0], trial.beside, texts)


def _stands_alone(name: str, world: str, notice: Notice) -> bool:
    """Whether a rule is noticed at the very same place without the other one."""
    return any(other_notice.at == notice.at for other_notice in _asked((name,), world, notice.at, most=1))


def _trial(rule: Rule, world: str, notice: Notice, companion: str, texts: Mapping[str, str]) -> Trial:
    bare = Trial(rule.name, "", beside=companion)
    return Trial(rule.name, _fingerprint(rule, bare, texts), world, notice.noticed, notice.at, notice.words, companion)


def _tried(rule: Rule, every: Sequence[Rule], progress: Callable[[str], None], among: Sequence[Sequence[str]]) -> Trial:
    texts = {candidate.name: candidate.fingerprint for candidate in every}
    others = [candidate for candidate in every if candidate != rule and alike(candidate, rule)]
    for worlds in among:
        for world in worlds:
            if notices := _asked((rule.name,), world, "", most=1):
                return _trial(rule, world, notices[0], "", texts)
        progress(f"{rule.name}: not noticed alone in {', '.join(worlds)}")
        for world, other in ((world, other) for world in worlds for other in others):
            if notice := _beside(rule, other, world):
                return _trial(rule, world, notice, other.name, texts)
    return Trial(rule.name, rule.fingerprint)


def alike(rule: Rule, other: Rule) -> bool:
    """Whether one rule may stand in for the other: both read a field or ask a function, or are parts of one proof."""
    return bool(rule.reads & other.reads) or (rule.module, rule.function) == (other.module, other.function)


def _beside(rule: Rule, other: Rule, world: str) -> Notice | None:
    """What is noticed where both are off and is not where ``other`` alone is."""
    most = SCHEDULES if world in {SCENES, FACTS, RANDOM} else 1
    both = _asked((rule.name, other.name), world, "", most=most)
    alone = {notice.at for notice in _asked((other.name,), world, "", most=most)} if both else set[str]()
    return next((notice for notice in both if notice.at not in alone), None)


def _asked(names: tuple[str, ...], world: str, case_id: str, most: int) -> list[Notice]:
    line = [sys.executable, str(_CHILD), ",".join(names), world, case_id, str(most)]
    try:
        ran = subprocess.run(line, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return []
    if ran.returncode:
        return [Notice("", "it does not start", ran.stderr.strip().splitlines()[-1][:200])]
    notices = [Notice(**load) for load in json.loads(ran.stdout.splitlines()[-1])]
    return [notice for notice in notices if notice.noticed != INCOMPLETE]


def page(trials: Sequence[Trial]) -> str:
    """The page of the documentation, as Markdown."""
    alone = sum(bool(trial.noticed) and not trial.beside for trial in trials)
    pairs = sum(bool(trial.noticed and trial.beside) for trial in trials)
    lacking = [trial.rule for trial in trials if not trial.noticed]
    missed = f", and {len(lacking)} are not noticed: {', '.join(lacking)}" if lacking else ""
    counted = f"{len(trials)} rules: {alone} are noticed alone, {pairs} beside another{missed}."
    return _PAGE.format(counted=counted, table="\n".join(_table(trials)))


_PAGE = """# Rules off

You see here, for each rule that decides recovery, rewinds, reruns and publications, the failure that it prevents. You
need the table when you change a rule or judge the proof. The lab removed each rule from the shipped source and searched
until a simulated world noticed: [how](fault-lab.md#rules-off).

`onceonly lab rules-off --record --page docs/rules-off.md` writes this page.

{counted}

"Off beside" names a rule that can replace the one before it: only with both removed something goes wrong. "Scenes" are
written by hand (`onceonly_lab.rulesoff.scenes`). "Drawn facts" are random input of one decision table
(`onceonly_lab.rulesoff.drawn`), with the number of the case. Other names are bounds of
[the fault lab](fault-lab.md#l0-every-interleaving).

{table}
"""


def _table(trials: Sequence[Trial]) -> Iterator[str]:
    yield "| rule | off beside | noticed by | called | first |"
    yield "|---|---|---|---|---|"
    for trial in trials:
        first, world = trial.first.replace("|", "/"), trial.world or "none"
        where = f"{world}, {'seed ' if world == RANDOM else ''}{trial.at.replace('_', ' ')}" if trial.at else world
        yield f"| `{trial.rule}` | {trial.beside and f'`{trial.beside}`'} | {where} | {trial.noticed} | {first} |"
