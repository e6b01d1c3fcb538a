"""Bad rows are read out of whatever form a sink holds them in."""

from __future__ import annotations

import json

from onceonly.quality.quarantine import BadRow

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
        "a record cut off": ({"value": json.dumps(parts)[:-14]}, None),
        "a tombstone": ({"value": None}, None),
        "a good row": ({"id": 1}, None),
    }
    assert {form: BadRow.of(3, kept) for form, (kept, _) in forms.items()} == {
        form: read for form, (_, read) in forms.items()
    }
    assert READ.rules == ("price > 0", "int")


def test_the_row_of_a_record_is_its_text_as_it_lies_there():
    rows = [
        '{"dec":9999999999999999999999999999.9999999999,"d":1.0E-7,"big":123456789012345678901234567890}',
        '{"text":"],\\"row\\":{}","hash":1,"row":{"x":0.1000000000000000055511151231257827}}',
        '{ "spaced" : [1.10, null] ,"u":"\\u00fc\u00fc" }',
    ]
    held = [f'{{"reasons":{json.dumps(RULES)},"row":{row},"hash":7}}' for row in rows]
    assert [one and one.row for one in (BadRow.of(3, {"value": text.encode()}) for text in held)] == rows
