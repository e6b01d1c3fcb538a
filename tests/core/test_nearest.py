"""A misspelt name beside the names that there are."""

from onceonly.errors import nearest


def test_a_misspelt_name_is_told_the_closest_one():
    assert nearest(["usr"], ["id", "user", "at"]) == " (did you mean user?)"


def test_a_name_that_is_like_none_is_told_nothing():
    assert nearest(["zzz"], ["id", "user"]) == ""
