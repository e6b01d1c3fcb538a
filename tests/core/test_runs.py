"""One process, several runs of a pipeline."""

from __future__ import annotations

import pytest

from onceonly.errors import ConfigurationError, FencedOut
from onceonly.runs import Runs


def ended(query_id: str, run_id: str) -> bool:
    return False


def active(query_id: str, run_id: str) -> bool:
    return True


def test_a_restart_after_the_old_run_has_ended_becomes_the_newest():
    runs = Runs()
    runs.enter("orders", "q", "first", ended)
    runs.enter("orders", "q", "second", ended)
    runs.check("orders", "second")


def test_a_callback_of_an_older_run_is_told_to_stop():
    runs = Runs()
    runs.enter("orders", "q", "first", ended)
    runs.enter("orders", "q", "second", ended)
    with pytest.raises(FencedOut, match="E402"):
        runs.check("orders", "first")
    with pytest.raises(FencedOut, match="E402"):
        runs.enter("orders", "q", "first", ended)


def test_a_second_live_query_under_one_name_is_refused_and_names_the_first():
    runs = Runs()
    runs.enter("orders", "q1", "first", ended)
    with pytest.raises(ConfigurationError, match="first") as caught:
        runs.enter("orders", "q2", "second", active)
    assert caught.value.code == "E103"
    runs.check("orders", "first")


def test_one_run_may_enter_again_and_pipelines_do_not_disturb_each_other():
    runs = Runs()
    runs.enter("orders", "q", "first", active)
    runs.enter("orders", "q", "first", active)
    runs.enter("flights", "p", "other", active)
    runs.check("orders", "first")
