"""Changes lines of the product, drawn by a seed, and demands that the quick tests notice nine in ten.

``mutants.py [--count 60] [--seed 7] [--of machine,runtime,replay,memory] [-- TESTS]``: without a count
every line that can be changed. A change that alters nothing that can be seen is listed, with the reason, in
``equivalent_mutants.txt`` by its fingerprint, and not counted.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import random
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import forked_tests as forked
import pytest

SURVIVE = 0.1
"""Which part of the changes may go unnoticed."""

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")

SINKS = forked.ROOT / "sinks" / "onceonly_sinks"
OF = {
    "machine": sorted((forked.ROOT / "src/onceonly/machine").glob("*.py")),
    "runtime": sorted((forked.ROOT / "src/onceonly/runtime").glob("*.py")),
    "replay": [forked.ROOT / f"src/onceonly/replay/{name}.py" for name in ("rewind", "publication", "source_check")],
    "memory": [SINKS / "memory/__init__.py", SINKS / "memory/store.py"],
    "sql": [SINKS / "sql/sink.py", SINKS / "sql/commit_outcome.py", SINKS / "sql/tables.py"],
    "delta": [SINKS / f"delta/{name}.py" for name in ("writer", "head", "marker", "log_committer", "errors")],
    "postgres": [
        SINKS / f"postgres/{name}.py" for name in ("commit", "transaction", "errors", "head", "error_translation")
    ],
    "kafka": [SINKS / f"kafka/{name}.py" for name in ("transactions", "commit", "errors", "marker_reader")],
}
"""What is changed: what decides, what does the I/O, and the way of a commit in each sink."""

_INSTEAD: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Attributes:
        path: the file.
        function: in which it is, qualified.
        block: the block of statements that it stands in, as tests are said to reach it.
        line: of the file.
        was: the changed expression or statement.
        now: what stands in its place.
        fingerprint: of file, function and both texts; another one where the same change is possible twice.
        make: changes a copy of the file's tree.
    """

    path: Path
    function: str
    block: str
    line: int
    was: str
    now: str
    fingerprint: str
    make: Callable[[], ast.Module]

    @property
    def text(self) -> str:
        """Where, and what."""
        where = f"{self.path.relative_to(forked.ROOT)}:{self.line}"
        was, now = (textwrap.shorten(one, 160) for one in (self.was, self.now))
        return f"{self.fingerprint} {where} {self.function}: {was} -> {now}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Every change of a file."""
    tree, known = ast.parse(path.read_text(encoding="utf-8")), set[str]()
    places = {id(node): at for at, node in enumerate(ast.walk(tree))}
    for name, function in forked.functions(tree):
        inner = {id(node): at for at, block in enumerate(forked.blocks(function)) for node in block}
        for statement, at in _statements(function, inner):
            for node in _own(statement):
                for number, new in enumerate(_changes(node)):
                    was, now = ast.unparse(node), ast.unparse(new)
                    text = "\n".join([str(path.relative_to(forked.ROOT)), name, was, now])
                    while text in known:
                        text += "\nagain"
                    known.add(text)
                    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
                    block = f"{forked.module_of(path)}:{name}#{at}"
                    make = partial(_made, tree, places[id(node)], number)
                    yield Mutant(path, name, block, node.lineno, was, now, fingerprint, make)


def _statements(function: ast.FunctionDef, inner: dict[int, int]) -> Iterator[tuple[ast.stmt, int]]:
    """Statements with the block that each stands in; those of a function within a function stand in its blocks."""
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and id(node) in inner:
            yield node, inner[id(node)]


def _own(statement: ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    """A statement and its expressions, without those of the statements within it and without types."""
    yield statement
    waiting = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr | ast.withitem)]
    if isinstance(statement, ast.AnnAssign):
        waiting = [statement.value] if statement.value else []
    elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
        waiting = []
    for top in waiting:
        yield from (node for node in ast.walk(top) if isinstance(node, ast.expr))


def _changes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What may stand in the place of a node."""
    yield from _of_expression(node) if isinstance(node, ast.expr) else _of_statement(node)


def _of_expression(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BoolOp(op=op, values=values):
            rests = (values[:at] + values[at + 1 :] for at in range(len(values)))
            yield from (rest[0] if len(rest) == 1 else ast.BoolOp(op, rest) for rest in rests)
        case ast.Compare(ops=[only], left=left, comparators=right) if type(only) in _INSTEAD:
            yield ast.Compare(left, [_INSTEAD[type(only)]()], right)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=left, right=right) if not _text(left) and not _text(right):
            yield ast.BinOp(left, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), right)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)


def _of_statement(node: ast.AST) -> Iterator[ast.stmt]:
    match node:
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            changed = copy.copy(node)
            changed.test = ast.UnaryOp(ast.Not(), test)
            yield changed
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant | ast.Compare | ast.UnaryOp):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() as call) if not ast.unparse(call).startswith(("_log.", "logger.")):
            yield ast.Pass()
        case ast.Raise():
            yield ast.Pass()


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _made(tree: ast.Module, at: int, number: int) -> ast.Module:
    """A copy of a tree with a change of one of its nodes."""
    copied = copy.deepcopy(tree)
    node = next(islice(ast.walk(copied), at, None))
    return ast.fix_missing_locations(_Replaced(node, list(_changes(node))[number]).visit(copied))


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, ast.copy_location(new, old)

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().visit(node)


def equivalents() -> dict[str, str]:
    """Reasons by fingerprint."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.is_file() else []
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))  # type: ignore[misc]


def judged(drawn: Sequence[Mutant], tests: forked.Tests) -> int:
    """Print who survives, and by how many tests; 1 where more do than may."""
    alike, survivors, known, by_job = equivalents(), 0, 0, dict[int, Mutant]()
    jobs: list[forked.Job] = []
    for one in drawn:
        jobs.append(forked.Job(one.path, one.make(), [one.function], tests.reaching(one.block)))
        by_job[id(jobs[-1])] = one

    def told(job: forked.Job, by: str) -> None:
        nonlocal survivors, known
        one = by_job[id(job)]
        if not by and one.fingerprint in alike:
            known += 1
        elif not by:
            survivors += 1
            print(f"SURVIVES {one.text} ({len(job.tests) or 'no'} tests reach it)", flush=True)

    tests.noticed(jobs, told)
    counted = len(drawn) - known
    print(f"{counted - survivors} of {counted} changes noticed, {known} alter nothing; wanted: nine in ten")
    return int(survivors > SURVIVE * counted)


def main() -> int:
    """Return 0 where at least nine in ten are noticed."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--count", type=int, help="draw so many; default: all")
    given.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    given.add_argument("--of", default="machine,runtime,replay,memory", help=f"of {', '.join(OF)}")
    given.add_argument("--only", nargs="+", default=[], help="the changes with these fingerprints")
    given.add_argument("tests", nargs="*", default=forked.QUICK, help="behind --: what pytest is asked for")
    given.add_argument("--learn", action="store_true", help="run all tests first, to see what each one reaches")
    given.add_argument("--workers", type=int, default=1)
    asked = given.parse_args()
    every = [mutant for name in asked.of.split(",") for path in OF[name] for mutant in mutants(path)]
    chosen = [one for one in every if not asked.only or one.fingerprint in asked.only]
    if asked.count is not None:
        chosen = random.Random(asked.seed).sample(chosen, min(asked.count, len(chosen)))
    print(f"{len(chosen)} of {len(every)} changes in {asked.of}, --seed {asked.seed}", flush=True)

    def act(session: pytest.Session) -> int:
        return judged(chosen, forked.Tests(session, learns=asked.learn, workers=asked.workers))

    return forked.collected(asked.tests, act)


if __name__ == "__main__":
    sys.exit(main())
