"""Numbers for rows: equal rows have one, others another, whatever came when."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onceonly_lab.explorer.expand import Fold, Lists

ROW = st.tuples(st.integers(0, 3), st.integers(0, 2**31 - 1), st.integers(0, 3))


@given(st.lists(st.lists(ROW, min_size=1, max_size=20), min_size=1, max_size=5))
def test_equal_rows_have_one_number_in_the_order_in_which_they_are_met(portions):
    fold, known = Fold(3), dict[tuple[int, ...], int]()
    for rows in portions:
        numbers, fresh = fold.of(np.array(rows, np.int32))
        expected = [known.setdefault(row, len(known)) for row in rows]
        assert numbers.tolist() == expected
        assert [rows[at] for at in fresh.tolist()] == list(known)[len(known) - len(fresh) :]
        assert fold.count == len(known)
        assert [tuple(row) for row in fold[numbers].tolist()] == rows


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4), min_size=1, max_size=6))
def test_lists_are_found_by_their_numbers(lists):
    kept = Lists(2)
    kept.extend(lists[:2])
    kept.extend(lists[2:])
    asked = np.array([*range(len(lists)), 0])
    owner, entries = kept.each(asked)
    found = [
        [tuple(entry) for entry, whose in zip(entries.tolist(), owner, strict=True) if whose == at]
        for at in range(len(asked))
    ]
    assert found == [*lists, lists[0]]
