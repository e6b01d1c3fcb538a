"""Switches each rule of ``onceonly lab rules-off`` off, and finds the first quick test that fails.

``noticed.py [--only RULE ... | --changed] [--record] [--page]``: ``--record`` keeps what is found in
``docs/how-it-is-proven/noticed.json``, ``--page`` writes the page beside it. Rules that no quick test notices are
noticed in a world of the lab, where ``make rules-off`` looks.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked_tests as forked
import pytest

FOLDER = forked.ROOT / "docs" / "how-it-is-proven"
RECORDED, PAGE = FOLDER / "noticed.json", FOLDER / "noticed.md"
WORLDS = forked.ROOT / "src" / "onceonly_lab" / "rulesoff" / "noticed.json"
WANTED = 0.8
"""Which part of the rules quick tests notice at least."""


def _rules() -> Any:
    """The finder of rules, loaded by itself: the product is imported by pytest alone."""
    path = WORLDS.with_name("rules.py")
    spec = importlib.util.spec_from_file_location("_rules", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_rules"] = module
    spec.loader.exec_module(module)
    return module


FOUND = _rules()


def file_of(module: str) -> Path:
    """Where a module of ours stands."""
    paths = (folder.joinpath(*module.split(".")).with_suffix(".py") for folder in forked.SOURCES)
    return next(path for path in paths if path.is_file())


def rules() -> list[Any]:
    """Every rule."""
    asked = [(module, FOUND._found) for module in FOUND.MODULES]
    asked += [(module, FOUND.found_at_rim) for module in FOUND.rim_modules()]
    return [rule for module, find in asked for rule, _ in find(module, ast.parse(file_of(module).read_text("utf-8")))]


def switched_off(names: frozenset[str], module: str, tests: forked.Tests) -> forked.Job:
    """A module without rules, and the tests that reach the innermost blocks that differ."""
    path = file_of(module)
    text = path.read_text(encoding="utf-8")
    changed = ast.parse(FOUND.without(module, names, text))
    functions: list[str] = []
    reached: list[str] = []
    for (name, was), (_, now) in zip(forked.functions(ast.parse(text)), forked.functions(changed), strict=True):
        if ast.dump(was) == ast.dump(now):
            continue
        functions.append(name)
        pairs = list(zip(forked.blocks(was), forked.blocks(now), strict=False))
        differ = [at for at, (one, other) in enumerate(pairs) if _dumped(one) != _dumped(other)]
        least = min(differ, key=lambda at: len(_dumped(pairs[at][0]))) if len(was.body) == len(now.body) else 0
        reached.append(f"{module}:{name}#{least}")
    return forked.Job(
        path, changed, functions, list(dict.fromkeys(name for one in reached for name in tests.reaching(one)))
    )


def _dumped(block: Sequence[ast.stmt]) -> str:
    return "".join(map(ast.dump, block))


def tried(wanted: Sequence[Any], tests: forked.Tests) -> list[dict[str, str]]:
    """For each rule the first test that fails without it; beside its stand-in where none fails without it alone."""
    beside = {load["rule"]: load["beside"] for load in json.loads(WORLDS.read_text(encoding="utf-8"))}
    every = {rule.name: rule for rule in rules()}
    alone = _tests([(rule.name,) for rule in wanted], every, tests)
    pairs = [(rule.name, beside[rule.name]) for rule in wanted if not alone[(rule.name,)] and beside.get(rule.name)]
    others = _tests([(other,) for _, other in pairs], every, tests)
    both = _tests([pair for pair in pairs if not others[(pair[1],)]], every, tests)
    found: list[dict[str, str]] = []
    for rule in wanted:
        other = beside.get(rule.name, "")
        by = alone[(rule.name,)]
        with_other = both.get((rule.name, other), "") if not by else ""
        one = {"rule": rule.name, "fingerprint": rule.fingerprint, "test": by or with_other}
        found.append({**one, "beside": other if with_other else ""})
    return found


def _tests(names: Sequence[tuple[str, ...]], every: dict[str, Any], tests: forked.Tests) -> dict[tuple[str, ...], str]:
    """The first test that fails without these rules, which are of one module."""
    jobs = [switched_off(frozenset(some), every[some[0]].module, tests) for some in names]
    said = {id(job): " and ".join(some) for job, some in zip(jobs, names, strict=True)}
    found = tests.noticed(jobs, lambda job, by: print(f"{said[id(job)]}: {by or 'no quick test'}", flush=True))
    return dict(zip(names, found, strict=True))


def recorded() -> list[dict[str, str]]:
    """What was found last."""
    found: list[dict[str, str]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def record(found: Sequence[dict[str, str]]) -> None:
    """Keep what was found; rules that are no more are forgotten."""
    known = {one["rule"]: one for one in (*(recorded() if RECORDED.is_file() else ()), *found)}
    kept = [known[rule.name] for rule in rules() if rule.name in known]
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


BROKEN = {
    "sinks, each in one way, and those that misunderstand their destination": "tests/sinks/"
    "test_conformance_catches_broken_sinks.py",
    "partitions of timestamps that leave out their zone": "tests/sinks/test_delta_partitions.py",
    "acceptances that do not heal, count or keep a record": "tests/cli/test_drop_sink.py",
    "doors that leave out a check before epoch 1": "tests/core/test_doors.py",
    "sinks that put rows one by one, in the wrong way": "tests/sinks/test_conformance_idempotent.py",
    "sinks that commit in two transactions": "tests/sinks/test_conformance_kills.py",
    "the engine of windows": "tests/panes/test_mutants.py",
    "sequences whose table hangs on where epochs are cut": "tests/lab/test_cuts.py",
    "rules of the model": "tests/lab/test_explorer.py",
    "rewinds": "tests/lab/test_rewinds.py",
    "publications of a rerun": "tests/lab/test_published_reruns.py",
    "several writers of one dataset": "tests/lab/test_writers.py",
    "sinks, runners and readers on Postgres, Delta and Kafka, which the checker must call by their names": "tests/lab/"
    "test_mutants.py",
}
"""What else is broken on purpose, and the file of the tests that try it."""

_TARGETS = {"docs": "make docs", "lab": "make lab", "slow": "make slow"}


def targets_of(file: str) -> list[str]:
    """What runs the tests of a file, by their marks in its source."""
    tree = ast.parse((forked.ROOT / file).read_text(encoding="utf-8"))
    whole = [one for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark"]
    tests = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]
    said = [" ".join(map(ast.unparse, [*test.decorator_list, *whole])) for test in tests]
    found = [[target for mark, target in _TARGETS.items() if f"pytest.mark.{mark}" in marks] for marks in said]
    return sorted({target for targets in found for target in targets or ["make test"]}, reverse=True)


def page() -> str:
    """The page, as Markdown."""
    worlds = {load["rule"]: load for load in json.loads(WORLDS.read_text(encoding="utf-8"))}
    found = recorded()
    quick = sum(bool(one["test"]) for one in found)
    return _PAGE.format(
        quick=quick,
        every=len(found),
        rules="\n".join(_row(one, worlds.get(one["rule"], {})) for one in found),
        broken="\n".join(f"| {what} | `{file}` | {', '.join(targets_of(file))} |" for what, file in BROKEN.items()),
    )


def _row(one: dict[str, str], world: dict[str, str]) -> str:
    file, _, test = one["test"].partition("::")
    shown = f"`{Path(file).name}` {test.partition('[')[0].removeprefix('test_').replace('_', ' ')}" if test else "no"
    beside = f" (beside `{one['beside']}`)" if one["beside"] else ""
    where = f"{world.get('world', 'not yet')} {world.get('at', '').replace('_', ' ')}".strip()
    return f"| `{one['rule']}` | {shown}{beside} | {where} |"


_PAGE = """# Who notices a missing rule

You see here which test fails when a rule is missing. You need the table before you delete or change a rule. Each rule
of recovery, rewinds, reruns and publications is switched off in the source, and the quick tests run until one fails.

`make rules-off` finds the rules that no quick test needs: it searches worlds of [the lab](../rules-off.md). Conditions
that carry out rewinds and publications, and those of the audit, are switched off too. No world runs these, so a quick
test must fail for each.

{quick} of {every} rules are noticed by a quick test, without Spark and without a server.
`scripts/noticed.py --record --page` finds them again.

| rule | first quick test that fails | noticed by `make rules-off` in |
|---|---|---|
{rules}

## Lines of the product

`make mutants-of-product` changes one condition, comparison, returned value or call at a time: in decisions, in I/O, and
in the in-memory sink. The bar is that tests without Spark and server notice nine in ten. It is not reached: of twenty
by `ARGS="--count 20 --seed 331"` they noticed fifteen. `scripts/equivalent_mutants.txt` lists changes without effect.

Commits into Delta, Postgres and Kafka need tests on their stores. You name them:
`make mutants-of-product ARGS="--of postgres --count 20 -- tests/sinks/test_postgres_outcomes.py"`.
`make mutants-of-checker` does the same to the checker of the lab.

## What else is broken on purpose

| broken | tests | run by |
|---|---|---|
{broken}
"""


def main() -> int:
    """Return 0 where enough is noticed."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--only", nargs="+", default=[], help="these rules")
    given.add_argument("--changed", action="store_true", help="those whose text is not the recorded one")
    given.add_argument("--record", action="store_true", help="keep what is found")
    given.add_argument("--page", action="store_true", help="write the page of what was recorded")
    given.add_argument("tests", nargs="*", default=forked.QUICK, help="behind --: what pytest is asked for")
    given.add_argument("--learn", action="store_true", help="run all tests first, to see what each one reaches")
    given.add_argument("--workers", type=int, default=1)
    asked = given.parse_args()
    known = {one["rule"]: one["fingerprint"] for one in recorded()} if asked.changed else {}
    wanted = [rule for rule in rules() if not asked.only or rule.name in asked.only]
    wanted = [rule for rule in wanted if known.get(rule.name) != rule.fingerprint]

    def act(session: pytest.Session) -> int:
        found = tried(wanted, forked.Tests(session, learns=asked.learn, workers=asked.workers))
        if asked.record:
            record(found)
        noticed = sum(bool(one["test"]) for one in found)
        print(f"{noticed} of {len(found)} rules noticed by a quick test; wanted: {WANTED:.0%}")
        return int(noticed < WANTED * len(found))

    failed = 0 if asked.page and not asked.record else forked.collected(asked.tests, act)
    if asked.page:
        PAGE.write_text(page(), encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main())
