"""Find the rules in the production source and remove them.

Imports nothing of the product.

A rule is a function ``_rN_...`` or ``_rf_...`` that may have nothing to say, an operand of a proof, a condition on
which the machine stops, or any condition of a table. What a new one is called needs no entry here: whatever stands in
these modules in that form is tried.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

DECISIONS = ("onceonly.machine.opening", "onceonly.machine.comparison", "onceonly.machine.refresh")
"""Modules whose functions ``_rN_...`` and ``_rf_...`` are rules."""

MACHINE = "onceonly.machine.transitions"
"""The module whose conditions to stop are rules."""

NOTING = "onceonly.machine.event_time"
"""The module in which what was said of time is held."""

TABLES = ("onceonly.machine.rewind", "onceonly.machine.publish")
"""Modules that decide in one go, each condition of which is a rule: of an ``if`` that returns, of a loop, of the
``if`` of a comprehension, and what a function that returns a ``bool`` returns; of an ``and`` or ``or`` each operand."""

PROOFS = ("same_batch", "still_held")
"""Functions whose operands are rules, each by itself."""

MODULES = (*DECISIONS, MACHINE, NOTING, *TABLES)
"""All of them."""

RIM = (
    "onceonly.replay.rewind",
    "onceonly.replay.publication",
    "onceonly.audit.rules_division",
    "onceonly.audit.rules_pipeline",
    "onceonly.audit.rules_records",
    "onceonly.audit.rules_sink",
    "onceonly.audit.rules_time",
    "onceonly.audit.rules_total",
    "onceonly_sinks.delta.writer",
)
"""Modules that do what was decided, or judge what stands: each condition on which they refuse, give up or find
something is a rule. No world of the lab runs them: tests alone can notice that one is gone. What the head of a Postgres
sink asks for durability is a text, which ``tests/core/test_commit_durability.py`` reads."""

NEEDLESS = {
    "current != decision.to": "the opening's last epoch is the newest of the readings: another one shows in a reading",
}
"""Conditions at the rim that may go without anybody noticing, and why."""

WHOLE = {
    (
        "onceonly.machine.event_time",
        "horizon",
    ): "return previous.effective_time.dataset_complete_until if previous.effective_time else None",
    ("onceonly_sinks.delta.writer", "_closed_behind"): "return True",
}
"""Functions that are such rules as a whole, with what a product without them does."""

INSTEAD = {
    "_absent": "return replace(state, phase=Phase.COMMIT, unknowns=0)",
    "_keep_latest": "return proposed_time",
}
"""Functions of the machine that are rules as a whole, with what a product without them does: it tries again blindly, or
takes every word on time, also one that takes another back."""

_STOPS = frozenset({"_stop", "_not_healed", "_miscounted", "_refused"})
_RULE = re.compile(r"_r(?:\d+s?|f)_")
_COMMON = {"facts", "state", "offer", "last", "epoch", "of", "position", "pipeline", "sink", "code"}
_NOTHING_SAID = frozenset({*_COMMON, *_STOPS, *dir(builtins), "replace"})
"""What nearly every rule reads or asks: sharing one of them says nothing."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        module: where it stands.
        function: the function that it is, or stands in.
        part: which of its operands or conditions, from 1; 0: the whole function.
        source: its text.
        reads: attributes that it reads and functions that it asks.
    """

    module: str
    function: str
    part: int
    source: str
    reads: frozenset[str]

    @property
    def name(self) -> str:
        """``comparison.same_batch#2``."""
        return f"{self.module.rpartition('.')[2]}.{self.function}" + (f"#{self.part}" if self.part else "")

    @property
    def fingerprint(self) -> str:
        """Of its text, 12 hex digits."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]


def rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the source."""
    return tuple(rule for module in MODULES for rule in _rules_in(module))


def at_the_rim() -> tuple[Rule, ...]:
    """Every rule that tests alone can notice."""
    return tuple(rule for module in rim_modules() for rule, _ in found_at_rim(module, ast.parse(source_of(module))))


def rim_modules() -> tuple[str, ...]:
    """Where those stand."""
    return tuple(dict.fromkeys((*RIM, *(module for module, _ in WHOLE))))


def source_of(module: str) -> str:
    """The text of a module, without importing it."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def without(module: str, names: frozenset[str], source: str) -> str:
    """The source of a module without some rules."""
    tree = ast.parse(source)
    for rule, node in (*_found(module, tree), *found_at_rim(module, tree)):
        if rule.name in names:
            _switch_off(node)
    return ast.unparse(ast.fix_missing_locations(tree))


def _rules_in(module: str) -> Iterator[Rule]:
    return (rule for rule, _ in _found(module, ast.parse(source_of(module))))


@dataclass(frozen=True, slots=True)
class _Slot:
    """An expression where it stands: a member of a node, or of a list that is one; and what it is without the rule."""

    holder: ast.AST
    member: str
    at: int | None
    off: bool

    @property
    def node(self) -> ast.expr:
        child = getattr(self.holder, self.member)
        expression: ast.expr = child if self.at is None else child[self.at]
        return expression

    def switch_off(self) -> None:
        nothing = ast.Constant(self.off)
        if self.at is None:
            setattr(self.holder, self.member, nothing)
        else:
            getattr(self.holder, self.member)[self.at] = nothing


Node = ast.FunctionDef | _Slot


def _found(module: str, tree: ast.Module) -> Iterator[tuple[Rule, Node]]:
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            yield from _found_in(module, function)


def _found_in(module: str, function: ast.FunctionDef) -> Iterator[tuple[Rule, Node]]:
    if module in TABLES:
        yield from _parts(module, function, _conditions(function))
    elif module in {MACHINE, NOTING} and function.name in INSTEAD:
        yield _rule(module, function, 0, function), function
    elif module == MACHINE:
        yield from _parts(module, function, _stopping(function))
    elif module in DECISIONS and _RULE.match(function.name) and _may_say_nothing(function):
        yield _rule(module, function, 0, function), function
    elif module in DECISIONS and function.name in PROOFS:
        yield from _parts(module, function, _operands(function))


def found_at_rim(module: str, tree: ast.Module) -> Iterator[tuple[Rule, Node]]:
    """The rules of a module that tests alone can notice, and where they stand."""
    for prefix, function in _functions(tree):
        if (module, function.name) in WHOLE:
            yield _rule(module, function, 0, function), function
        elif module in RIM:
            slots = (slot for slot in _refusing(function) if ast.unparse(slot.node) not in NEEDLESS)
            for part, slot in enumerate(slots, 1):
                rule = _rule(module, function, part, slot.node)
                yield replace(rule, function=f"{prefix}{function.name}"), slot


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.", method) for method in node.body if isinstance(method, ast.FunctionDef))


def _refusing(function: ast.FunctionDef) -> Iterator[_Slot]:
    for node in ast.walk(function):
        if isinstance(node, ast.If) and any(map(_refuses, node.body)):
            yield from _each(_Slot(node, "test", None, off=False))


def _refuses(node: ast.stmt) -> bool:
    calls = {
        child.func.id for child in ast.walk(node) if isinstance(child, ast.Call) and isinstance(child.func, ast.Name)
    }
    if isinstance(node, ast.Raise):
        return "TypeError" not in calls  # what no type checker lets happen
    yields = isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom)
    return yields or (isinstance(node, ast.Return) and bool(calls & _REFUSING))


_REFUSING = frozenset({"refuse", "found", "Refusal"})


def _parts(module: str, function: ast.FunctionDef, slots: Iterator[_Slot]) -> Iterator[tuple[Rule, Node]]:
    for part, slot in enumerate(slots, 1):
        rule_node = slot.holder if module == MACHINE else slot.node
        yield _rule(module, function, part, rule_node), slot


def _may_say_nothing(function: ast.FunctionDef) -> bool:
    return function.returns is not None and ("None" in ast.unparse(function.returns) or _says_several(function))


def _says_several(function: ast.FunctionDef) -> bool:
    return function.returns is not None and ast.unparse(function.returns).startswith("Iterator")


def _operands(function: ast.FunctionDef) -> Iterator[_Slot]:
    for proof in (node for node in ast.walk(function) if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)):
        yield from (_Slot(proof, "values", at, off=True) for at in range(len(proof.values)))


def _stopping(function: ast.FunctionDef) -> Iterator[_Slot]:
    for node in ast.walk(function):
        if isinstance(node, ast.If) and any(
            isinstance(statement, ast.Return) and _stops(statement) for statement in node.body
        ):
            yield _Slot(node, "test", None, off=False)


def _conditions(function: ast.FunctionDef) -> Iterator[_Slot]:
    decides = function.returns is not None and ast.unparse(function.returns) == "bool"
    for node in ast.walk(function):
        if (isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return)) or isinstance(node, ast.While):
            yield from _each(_Slot(node, "test", None, off=False))
        elif isinstance(node, ast.comprehension):
            for at in range(len(node.ifs)):
                yield from _each(_Slot(node, "ifs", at, off=True))
        elif isinstance(node, ast.Return) and decides and not isinstance(node.value, ast.Constant):
            yield from _each(_Slot(node, "value", None, off=True))


def _each(slot: _Slot) -> Iterator[_Slot]:
    """A condition, and what it consists of: without an operand the others decide; without all, nothing does."""
    node = slot.node.value if isinstance(slot.node, ast.NamedExpr) else slot.node
    proves = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)
    if not isinstance(node, ast.BoolOp) or proves != slot.off:
        yield slot
    if isinstance(node, ast.BoolOp):
        yield from (_Slot(node, "values", at, off=proves) for at in range(len(node.values)))


def _stops(node: ast.stmt) -> bool:
    calls = (child.func for child in ast.walk(node) if isinstance(child, ast.Call))
    return any(isinstance(call, ast.Name) and call.id in _STOPS for call in calls)


def _rule(module: str, function: ast.FunctionDef, part: int, node: ast.AST) -> Rule:
    read = {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}
    called_names = {
        child.func.id for child in ast.walk(node) if isinstance(child, ast.Call) and isinstance(child.func, ast.Name)
    }
    return Rule(module, function.name, part, ast.unparse(node), frozenset(read | called_names) - _NOTHING_SAID)


def _switch_off(node: Node) -> None:
    if isinstance(node, ast.FunctionDef):
        nothing = "yield from ()" if _says_several(node) else "pass"
        replacements = {name: instead for (_, name), instead in WHOLE.items()}
        node.body = ast.parse({**INSTEAD, **replacements}.get(node.name, nothing)).body
    else:
        node.switch_off()
