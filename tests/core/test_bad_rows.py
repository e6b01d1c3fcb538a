"""Bad rows are read out of whatever form a sink holds them in."""

from __future__ import annotations

import json

from onceonly.runtime.quarantine import BadRow

RULES = [{"by": "expect", "rule": "price > 0"}, {"by": "expect", "rule": "price > 0"}, {"by": "cast", "rule": "int"}]
READ = BadRow(3, tuple(RULES), '{"id": 1}', 7)


def test_a_bad_row_is_read_out_of_columns_and_out_of_a_record_and_out_of_nothing_else():
    parts = {"reasons": RULES, "row": {"id": 1}, "hash": 7}
    texts = {**parts, "reasons": json.dumps(RULES), "row": '{"id": 1}'}
    forms = {
        "columns": (parts, READ),
        "columns of text": (texts, READ),
        "a record": ({"key": None, "value": json.dumps(parts)}, READ),
        "a record of texts": ({"value": json.dumps(texts)}, READ),
        "values that are not kept": ({"reasons": RULES, "row": None, "hash": 7}, BadRow(3, tuple(RULES), None, 7)),
        "no hash": ({"reasons": RULES, "value": json.dumps(parts)}, READ),
        "no reasons": ({"hash": 9, "value": json.dumps(parts)}, READ),
        "another record": ({"value": "{}"}, None),
        "no JSON": ({"value": "id"}, None),
        "a good row": ({"id": 1}, None),
    }
    assert {form: BadRow.of(3, kept) for form, (kept, _) in forms.items()} == {
        form: read for form, (_, read) in forms.items()
    }
    assert READ.rules == ("price > 0", "int")
