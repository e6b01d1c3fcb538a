"""What a person sees of a run: progress on a terminal, and which epoch and sink a job of Spark works for."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from onceonly import Storage, exactly_once
from onceonly.api import run_state

pytestmark = pytest.mark.spark


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_targets_epochs_and_skipped_replays_and_a_pipe_sees_nothing(stream, delta, ledger, monkeypatch):
    monkeypatch.delenv("ONCEONLY_PROGRESS", raising=False)
    write = exactly_once(delta.sink(), storage=Storage(ledger=ledger))
    with redirect_stderr(io.StringIO()) as pipe:
        stream.receive(range(10), range(10, 20)).run(write)
    assert "orders:" not in pipe.getvalue()
    stream.remove("commits", 1)
    with redirect_stderr(Terminal()) as terminal:
        stream.receive(range(20, 30), range(30, 40)).run(exactly_once(delta.sink(), storage=Storage(ledger=ledger)))
        for watch in run_state._watches:
            watch.join(30)
    first, *lines = terminal.getvalue().splitlines()
    assert first == f"orders: into delta:{delta.path} (exactly once), ledger {ledger.address}"
    shown = "; ".join(line.removeprefix("orders: ") for line in lines)
    assert shown.startswith("replay of epoch 2 skipped; epoch"), lines
    assert sum(int(part.split("  ")[1].split()[0]) for part in shown.split("; ")[1:]) == 20, lines


def test_a_job_of_ours_names_epoch_and_sink_in_its_description_and_keeps_its_group(stream, delta, pg, ledger):
    context = stream.spark.sparkContext
    write, seen = exactly_once(pg.sink(), delta.sink(), storage=Storage(ledger=ledger)), []

    def callback(df, batch_id):
        for job in (lambda: None, lambda: write(df, batch_id)):
            job()
            seen.append([context.getLocalProperty(f"spark.{name}") for name in ("job.description", "jobGroup.id")])
        df.count()

    query = stream.receive(range(10), range(10, 20)).start(callback)
    query.awaitTermination()
    assert seen[0] == seen[1], "restored"
    assert seen[0][1] == query.runId
    described = jobs_of(stream.spark, query.runId)
    own, ours = ([text for text in described if ("\nonceonly: " in text) is ours] for ours in (False, True))
    assert len(own) >= 2, "the callback's own jobs"
    assert {text.partition("\nonceonly: ")[0] for text in ours} <= set(own), "added to Spark's own text"
    assert {text.partition("\nonceonly: ")[2] for text in ours} == {"epoch 1, stage", "epoch 2, stage"}


def test_with_one_sink_the_description_names_it(stream, pg, ledger):
    query = stream.receive(range(10)).start(exactly_once(pg.sink(), storage=Storage(ledger=ledger)))
    query.awaitTermination()
    texts = {text.partition("\nonceonly: ")[2] for text in jobs_of(stream.spark, query.runId)}
    assert "epoch 1, write postgres:orders" in texts


def jobs_of(spark, run_id):
    """Descriptions of all jobs of a run, as the Spark UI has them."""
    session = spark.sparkContext._jsc.sc()
    session.listenerBus().waitUntilEmpty()
    jobs = session.statusStore().jobsList(None)
    found = [jobs.apply(at) for at in range(jobs.size())]
    return [job.description().get() for job in found if job.jobGroup().isDefined() and job.jobGroup().get() == run_id]
