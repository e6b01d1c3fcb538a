"""What is decided by how a text begins or ends: nothing of ours. What is left reads other people's texts, and says why.

A code's family, a source's kind and a module's package are values. Only their own parsers look at the text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest
from tests.core.raising import ROOT

PRODUCT = ("checkpoints/onceonly_checkpoints", "src/onceonly", "sinks/onceonly_sinks")

LEFT: Mapping[str, frozenset[str]] = {
    "the one parser of a text of ours, which makes a value of it": frozenset(
        {
            "of: _NUMBERED.get(code[:2])",
            "sections: part.startswith(label)",
            "read: line.startswith(_CAUSE)",
            "read: line.startswith(_NEXT)",
            "html: line.startswith(' ')",
            "column_origins: line['fields'].startswith(' delay')",
            "code: code[0] == 'E'",
            "is_of: decoded_key[:2] == [writer.pipeline, writer.sink]",
        }
    ),
    "a class of the JVM, or of a library, whose name differs between versions and builds": frozenset(
        {
            "of_usage: type(error).__module__.startswith('typer')",
            "is_remote: type(of).__module__.startswith('pyspark.sql.connect')",
            "relations: line.startswith('StreamingRelation')",
            "_no_room: type(error).__module__.startswith(('_internal', 'deltalake', 'builtins'))",
            "reads_files: self.kind.endswith('FileStreamSource')",
            "_options: _class_of(source).endswith('DeltaSource')",
            "reads_on: _class_of(source).endswith('DeltaSource')",
            "clears_up: _class_of(source).endswith('FileStreamSource')",
            "passes_over: _class_of(source).endswith(_READ_FILES)",
            "_kind: str(node.sourceName()).startswith('FileSource')",
            "_previewed: kind.endswith(_FILES)",
            "_previewed: kind.endswith((_FILES, 'DeltaSource'))",
            "_previewed: class_name(node).endswith('V2')",
            "preview_of: class_name(node).startswith('StreamingRelation')",
            "private: candidate.getName().endswith(name)",
            "brokers: str(source.getClass().getName()).startswith('org.apache.spark.sql.kafka')",
            "functions: node.kind.endswith(('UDF', 'UDAF', 'UDTF'))",
            "output: self.kind.endswith('Join')",
        }
    ),
    "the text of a plan, which is all that Spark Connect tells of one": frozenset(
        {
            "_calls: text[end:end + 1] != '#'",
        }
    ),
    "a type as Spark, Arrow or Postgres spell it": frozenset(
        {
            "row_width: kind.startswith(_FIXED)",
            "warn_text_order: kind.startswith(_TEXTS)",
            "check_route: kind.startswith('string')",
            "_limit: text[at:at + 1] != '<'",
            "ddl_of: element[-2:] != '[]'",
            "_columns_for: ddl.endswith('[]')",
            "_stage: plan.shape.schema.types[:len(names)] == plan.batch.schema.types",
        }
    ),
    "an SQLSTATE, whose first characters are its class by the standard": frozenset(
        {
            "refused_value: state.startswith(_VALUES)",
            "quotes: self.state.startswith(_VALUES)",
            "refusal: failure.state.startswith(states)",
            "transaction_is_over: self.state.startswith('08')",
            "lost: self.state.startswith(('08', '57P', '25P03', '25P04'))",
            "words: _SQLSTATE_WORDS.get(state[:2])",
        }
    ),
    "an error condition of Spark, whose name says its group first": frozenset(
        {
            "_of_rows: name.startswith(_ABOUT_ROWS)",
            "unread: condition.startswith('UNRESOLVED_COLUMN')",
            "unread: condition.startswith(_OF_THE_TEXT)",
            "_by_condition: name.startswith(_ABOUT_TABLE)",
            "of_merge: name.startswith(_ABOUT_MERGE)",
        }
    ),
    "the name of a file or a directory": frozenset(
        {
            "listed_in: name[0] not in '._'",
            "mount_of: path.startswith(mount_point.rstrip('/') + '/')",
            "_flushed: name.endswith('.parquet')",
            "write: name.endswith('.parquet')",
            "_folders: name.startswith(self._kin)",
            "drop: folder.startswith(self._kin)",
            "_act: str(error.filename or '').startswith(self._root.address)",
            "versions: name.endswith('.json')",
            "check_place: path.name.startswith(('.', '_'))",
            "input_files: path.endswith(COMPACT)",
            "compact_id: name.endswith(COMPACT)",
            "_forget_log: path.endswith(logs.COMPACT)",
            "with_conf: file.path.startswith('offsets/')",
            "visible: name.startswith('.')",
        }
    ),
    "an address, a name or a word that somebody typed": frozenset(
        {
            "_settings: str(to).startswith(('http://', 'https://'))",
            "_settings: str(to).startswith('{')",
            "dataset_of: url.scheme.startswith('abfs')",
            "target_of: host.startswith('/')",
            "local_address: address.startswith('127.')",
            "destination: address.partition('://')[:2] in _OF_A_SERVER",
            "page_of: name.startswith('X-')",
            "_of_error: code[0] == 'E'",
            "_is_watched: type(sys.stderr).__module__.startswith('ipykernel')",
            "parse_args: following[:1] == '-'",
            "json_wanted: word.startswith('-o')",
            "location: target.startswith('file:')",
            "check: spoken.startswith('SASL')",
            "scheme_of: location.startswith('file:')",
            "half_url: location[len(scheme):].startswith('://')",
            "_local: path.startswith('file:')",
            "_check: route.by.lower().startswith('string(')",
            "local_path: url.startswith('file:')",
            "read_address: name.startswith(PREFIX)",
            "read_address: address.startswith(_SCHEME)",
            "_unprefixed: name.startswith(PREFIX)",
            "described: name.endswith('.key')",
            "connection: name.startswith(_CONNECTION)",
            "for_spark: name.startswith(_CONNECTION)",
        }
    ),
    "a record of Spark, Delta or Postgres, or a field's name in it": frozenset(
        {
            "constraints: name.startswith(prefix)",
            "rewritten: name.startswith('partition.')",
            "_unquote: part.startswith('\"')",
            "generation_of: name.startswith(f'stage_{tag}_')",
            "_matches: checksums[8:] == b''.join((struct.pack('>I', zlib.crc32(block)) for block in blocks))",
            "_matches: checksums[:4] != b'crc\\x00'",
            "_field: offset.startswith('{')",
            "_complete: offset[:1] in ('', '{', '[')",
        }
    ),
}
"""Every such decision of the product, as ``function: expression``, under the reason why it stays."""


def by_a_part(tree: ast.AST, function: str = "") -> Iterator[str]:
    """Tests of a beginning or an end: two methods, comparisons of a slice, and tables that are asked by one."""
    function = tree.name if isinstance(tree, ast.FunctionDef) else function
    match tree:
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith")):
            yield f"{function}: {ast.unparse(tree)}"
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Subscript(slice=ast.Slice()), *_]):
            yield f"{function}: {ast.unparse(tree)}"
        case ast.Subscript(slice=ast.Subscript(slice=ast.Slice())):
            yield f"{function}: {ast.unparse(tree)}"
        case ast.Compare(left=left, comparators=others) if _of_a_part([left, *others]):
            yield f"{function}: {ast.unparse(tree)}"
        case ast.Match(subject=subject) if _of_a_part([subject]):
            yield f"{function}: {ast.unparse(subject)}"
        case _:
            pass
    for child in ast.iter_child_nodes(tree):
        yield from by_a_part(child, function)


def _of_a_part(sides: list[ast.expr]) -> bool:
    """Whether a slice is compared, or one character with a text."""
    texts = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)
    parts = [side.slice for side in sides if isinstance(side, ast.Subscript)]
    return any(isinstance(part, ast.Slice) or (texts and _first(part)) for part in parts)


def _first(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value in (0, 1)


def test_what_the_product_decides_by_a_part_of_a_text_is_listed_with_its_reason() -> None:
    found = {
        one
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
        for one in by_a_part(ast.parse(path.read_text()))
    }
    assert found == frozenset[str]().union(*LEFT.values())


def test_each_of_them_has_one_reason() -> None:
    assert sum(map(len, LEFT.values())) == len(frozenset[str]().union(*LEFT.values()))


@pytest.mark.parametrize(
    "text",
    [
        "code.startswith('E2')",
        "code[:2] == 'E2'",
        "code[0] == 'E'",
        "'E2' == code[:2]",
        "CLASSES[code[:2]]",
        "CLASSES.get(code[:2])",
        "code[:2] in {'E2', 'E3'}",
        "(end.code or '').startswith('E3')",
    ],
)
def test_a_decision_by_a_part_of_a_text_is_noticed(text: str) -> None:
    assert list(by_a_part(ast.parse(f"def f(code, end):\n  return {text}\n"))) == [f"f: {text}"]


def test_a_match_on_a_part_of_a_text_is_noticed() -> None:
    assert list(by_a_part(ast.parse("match code[:2]:\n  case 'E2':\n    pass\n"))) == [": code[:2]"]
