"""Rules are found in the source and taken out of it, one at a time; a world that needs one notices."""

from __future__ import annotations

import ast
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from onceonly.machine import publish, rewind
from onceonly.machine.facts import Refusal
from onceonly_lab.rulesoff import publications, replays, rewindcases
from onceonly_lab.rulesoff import rules as rulesoff
from onceonly_lab.rulesoff.drawn import TABLES
from onceonly_lab.rulesoff.rules import INSTEAD, rules, source_of, without
from onceonly_lab.rulesoff.scenes import SCENES
from onceonly_lab.rulesoff.trial import alike, changed, chosen, page, recorded

ROOT = Path(__file__).parents[2]


def test_rules_have_names_of_their_own():
    names = [rule.name for rule in rules()]
    assert len(names) == len(set(names))
    assert any(name.startswith("comparison.same_batch") for name in names)
    assert {"opening._r6_behind_receipt", "transitions._absent", "transitions._heal#1"} <= set(names)
    assert INSTEAD.keys() <= {name.partition(".")[2] for name in names}


@pytest.mark.lab
def test_each_rule_can_be_taken_out_and_what_is_left_compiles():
    stays, modules = [], {rule.module: source_of(rule.module) for rule in rules()}
    plain = {module: ast.unparse(ast.parse(whole)) for module, whole in modules.items()}
    assert {module: without(module, frozenset(), whole) for module, whole in modules.items()} == plain
    for rule in rules():
        left = without(rule.module, frozenset({rule.name}), modules[rule.module])
        compile(left, rule.name, "exec")
        if left == plain[rule.module]:
            stays.append(rule.name)
    assert stays == []


TABLE = """
def first(a, b) -> int:
    if a or b:
        return 1
    if a and b:
        return 2
    if a:
        b = 3
    while a:
        a = b
    return len([x for x in b if x > a and x])


def second(a, b) -> bool:
    if a:
        return True
    return a or b
"""


@pytest.mark.parametrize(
    ("part", "was", "left"),
    [
        ("first#1", "if a or b:", "if False or b:"),
        ("first#2", "if a or b:", "if a or False:"),
        ("first#3", "if a and b:", "if False:"),
        ("first#4", "if a and b:", "if True and b:"),
        ("first#5", "if a and b:", "if a and True:"),
        ("first#6", "while a:", "while False:"),
        ("first#7", "if x > a and x]", "if True and x]"),
        ("first#8", "if x > a and x]", "if x > a and True]"),
        ("second#1", "if a:\n        return True", "if False:\n        return True"),
        ("second#2", "return a or b", "return True"),
        ("second#3", "return a or b", "return False or b"),
        ("second#4", "return a or b", "return a or False"),
    ],
)
def test_each_condition_of_a_table_is_a_rule_and_without_an_operand_the_others_decide(part: str, was: str, left: str):
    for module in rulesoff.TABLES:
        table = ast.unparse(ast.parse(TABLE))
        found = without(module, frozenset({f"{module.rpartition('.')[2]}.{part}"}), table)
        assert found == table.replace(was, left) != table


def test_a_choice_of_words_or_of_what_is_added_is_no_rule_of_a_table():
    names = [f"rewind.{function}#{part}" for function in ("first", "second") for part in range(1, 20)]
    assert "if a:\n        b = 3" in without("onceonly.machine.rewind", frozenset(names), TABLE)


def test_rules_are_drawn_by_a_seed():
    drawn = chosen((), new=False, count=2, seed=1)
    assert len(drawn) == 2
    assert drawn == chosen((), new=False, count=2, seed=1)
    assert len({chosen((), new=False, count=2, seed=seed) for seed in range(9)}) > 1


def test_with_all_rules_nothing_is_wrong_at_the_end_of_a_scene():
    assert {scene.__name__: wrong for scene in SCENES if (wrong := scene())} == {}


FIRST = random.SystemRandom().randrange(1_000_000_000)


@pytest.mark.parametrize("table", TABLES)
def test_with_all_rules_nothing_is_wrong_in_drawn_facts(table: str):
    print(f"seeds from {FIRST}")
    wrong = (TABLES[table](random.Random(seed)) for seed in range(FIRST, FIRST + 1000))
    assert next(filter(None, wrong), "") == ""


def test_each_verdict_of_the_tables_is_reached_by_drawn_facts():
    rewinds, batches, published = Counter[str](), Counter[str](), Counter[str]()
    for seed in range(1000):
        rewinds[type(rewind.decide(rewindcases.drawn(random.Random(seed)).facts)).__name__] += 1
        batches[type(publish.replayed(replays.drawn(random.Random(seed)).facts)).__name__] += 1
        found = publish.decide(publications.drawn(random.Random(seed)).facts)
        published[found.code if isinstance(found, Refusal) else "Epoch"] += 1
    assert set(rewinds) == {
        *("CutBack", "BringUp", "UnknownTarget", "UnexpectedPosition"),
        *("RowsUnavailable", "SourceRowsMissing", "StaleMarkers"),
    }
    assert set(batches) == {"NewEpoch", "Skip", "Refusal", "NoneType"}
    assert set(published) == {"Epoch", "E240", "E241", "E242"}
    assert min((rewinds + batches + published).values()) >= 10


RIM = """
class Writer:
    def install(self, found, wanted):
        if found != wanted or wanted.rows:
            raise refuse("E1")
        if not isinstance(found, str):
            raise TypeError(found)
        if found:
            return None

def compare(facts):
    if facts.rows:
        yield found("A1")
    elif facts.more:
        return refuse("E2")
"""


def test_each_condition_on_which_the_rim_refuses_or_finds_something_is_a_rule():
    found = list(rulesoff.found_at_rim(rulesoff.RIM[0], ast.parse(RIM)))
    said = [(rule.function, rule.part, rule.source) for rule, _ in found]
    assert said == [
        ("Writer.install", 1, "found != wanted"),
        ("Writer.install", 2, "wanted.rows"),
        ("compare", 1, "facts.rows"),
        ("compare", 2, "facts.more"),
    ]
    assert list(rulesoff.found_at_rim("onceonly.machine.opening", ast.parse(RIM))) == []
    for rule in rulesoff.at_the_rim():
        text = source_of(rule.module)
        left = without(rule.module, frozenset({rule.name}), text)
        compile(left, rule.name, "exec")
        assert left != ast.unparse(ast.parse(text)), rule.name


def test_what_may_go_unseen_at_the_rim_stands_there_and_has_a_reason():
    texts = " ".join(ast.unparse(ast.parse(source_of(module))) for module in rulesoff.RIM)
    assert [text for text, why in rulesoff.NEEDLESS.items() if text not in texts or len(why.split()) < 4] == []


def test_rules_stand_in_for_each_other_where_they_read_or_ask_the_same_or_are_of_one_proof():
    by_name = {rule.name: rule for rule in rules()}
    looked, clock = by_name["transitions._looked#1"], by_name["comparison.same_batch#1"]
    assert alike(looked, by_name["transitions._read_one#1"])
    assert alike(clock, by_name["comparison.same_batch#2"])
    assert not alike(looked, clock)


def test_every_rule_is_in_the_table_and_was_noticed():
    """New and changed ones come there by ``onceonly lab rules-off --changed --record --page docs/rules-off.md``."""
    assert [one.rule for one in recorded().values() if not one.noticed] == []
    assert list(recorded()) == [rule.name for rule in rules()]


def test_the_page_of_the_documentation_is_what_was_recorded():
    assert (ROOT / "docs" / "rules-off.md").read_text() == page(tuple(recorded().values()))


def test_a_rule_whose_text_is_another_one_is_tried_again():
    by_name = {rule.name: rule for rule in rules()}
    first, second = by_name["comparison.same_batch#1"], by_name["comparison.same_batch#2"]
    another = replace(second, source="True")
    assert second not in changed((first, second))
    assert changed((first, another)) == [first, another]  # the one stands beside the other in the table
