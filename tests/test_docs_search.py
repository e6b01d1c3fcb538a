"""A reader finds headings by the words of the trade, and nine in ten blocks of the pages for readers run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.test_docs import CONSOLE, FILE, KNOWN, README, ROOT, UNTRIED, Block, blocks, name

pytestmark = pytest.mark.docs

PROOF = "How it is proven"
"""The section for those who doubt; all pages before it are for those who use."""

SEARCHED = """
alert, Airflow, API call, Avro, backfill, CDC, checkpoint, cost, Databricks, dead letter, Debezium, deduplicate, delete,
EMR, exactly once, exit code, foreachBatch, Glue, Grafana, GRANT, idempotent, JSON, Kubernetes, late data,
lost checkpoint, MERGE, metrics, migrate, MinIO, outbox, password, Prometheus, quarantine, restart, restore, retry,
rights, S3, SASL, schema change, schema registry, session, SSL, transaction, trigger, tuning, upsert, Volumes,
watermark, window
"""


def listed(nav: Any) -> Iterator[str]:
    """Pages of a part of the navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav if isinstance(nav, list) else nav.values():
            yield from listed(part)


def user_pages() -> list[Path]:
    """Written pages before the section on the proof, codes and the changelog left out; the first is the README."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    before = [part for part in nav if PROOF not in part]
    assert len(before) == len(nav) - 1
    return [README, *(ROOT / "docs" / page for page in listed(before) if (ROOT / "docs" / page).is_file())]


def headings() -> str:
    return "\n".join(line for page in user_pages() for line in prose(page) if line.startswith("#")).lower()


def prose(page: Path) -> list[str]:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()


def test_what_readers_search_for() -> None:
    words = [word.strip() for word in SEARCHED.split(",")]
    found = headings()
    assert len(words) >= 40
    assert [word for word in words if not re.search(rf"\b{re.escape(word.lower())}", found)] == []


def runs(block: Block) -> bool:
    return block.info in {*KNOWN, CONSOLE} or FILE.fullmatch(block.info) is not None


def is_code(block: Block) -> bool:
    """Whether a block is Python or commands; as text it may be so, too."""
    return runs(block) or block.info == UNTRIED or (block.info == "text" and (is_command(block) or is_python(block)))


def is_command(block: Block) -> bool:
    return re.match(r"(\$ )?onceonly \w", block.code) is not None


def is_python(block: Block) -> bool:
    try:
        body = ast.parse(block.code).body
    except SyntaxError:
        return False
    return any(not isinstance(each, ast.Expr) or isinstance(each.value, ast.Call) for each in body)


def test_nine_in_ten_blocks_of_the_pages_for_users_run() -> None:
    """Commands that are shown as text are parsed by ``tests/cli/test_printed_commands.py``."""
    code = [(page, block) for page in user_pages() for block in blocks(page.read_text()) if is_code(block)]
    still = [f"{name(page)}:{block.line}: {block.info}" for page, block in code if not runs(block)]
    share = 1 - len(still) / len(code)
    print(f"{len(code) - len(still)} of {len(code)} blocks run, {share:.1%}; not these:", *still, sep="\n  ")
    assert len(code) > 100
    assert share >= 0.9


def test_python_that_no_test_runs_says_so() -> None:
    unlabelled = [
        f"{name(page)}:{block.line}"
        for page in user_pages()
        for block in blocks(page.read_text())
        if block.info == "text" and is_python(block) and "import " in block.code
    ]
    assert unlabelled == []


def test_a_page_with_an_untried_block_says_so_in_words() -> None:
    silent = [
        name(page)
        for page in user_pages()
        if any(block.info == UNTRIED for block in blocks(page.read_text())) and "ot tried here" not in page.read_text()
    ]
    assert silent == []
