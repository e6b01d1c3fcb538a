"""Result of a chaos campaign: verdict, reproduction and JUnit XML."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from onceonly_lab.chaos.cells import Matrix
from onceonly_lab.checker import MUST_HOLD, Anomaly, Finding, Judgement, Verdict
from onceonly_lab.checker.finding import counted
from onceonly_lab.schedule import Schedule

# ---- A judgement as JUnit XML, one case per anomaly, so that a build server shows which promise broke. Pure.

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(judgement: Judgement) -> str:
    """Spell a judgement: a case fails with its findings, and one more is in error where the run proves too little."""
    failed = [anomaly for anomaly in Anomaly if anomaly in judgement.anomalies]
    counts = {"tests": len(Anomaly) + 1, "failures": len(failed), "errors": int(bool(judgement.missing))}
    name = _clean(f"onceonly lab: {judgement.run}")
    suite = Xml.Element("testsuite", {"name": name, **{key: str(count) for key, count in counts.items()}})
    for anomaly in Anomaly:
        case = Xml.SubElement(suite, "testcase", classname=name, name=f"{anomaly}: {MUST_HOLD[anomaly]}")
        for finding in judgement.findings:
            if finding.anomaly is anomaly:
                Xml.SubElement(case, "failure", message=_clean(finding.what)).text = _clean(_place(finding))
    case = Xml.SubElement(suite, "testcase", classname=name, name="the run proves something")
    if judgement.missing:
        Xml.SubElement(case, "error", message=_clean("; ".join(judgement.missing)))
    Xml.indent(suite)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _place(finding: Finding) -> str:
    parts = {
        "sink": finding.sink,
        "epoch": finding.epoch,
        "rows": ", ".join(finding.witnesses) or None,
        "lines": ", ".join(map(str, finding.lines)) or None,
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


def _clean(text: str) -> str:
    """Characters that XML cannot hold become the replacement character."""
    return _FORBIDDEN.sub("\ufffd", text)


# ---- What a campaign showed: a verdict, and for a failure everything that is needed to see it again.

SCHEDULE_FILE = "schedule.json"
"""Name of the file with the schedule of a failure."""

_MOST_FINDINGS = 3


class NotExactlyOnce(AssertionError):
    """A job lost, doubled or changed rows; the text has the rows, the schedule and how to play it again."""


class NothingProven(AssertionError):
    """A campaign found nothing wrong and did not go through what it had to; the text says what was missing."""


def told_kills(kills: int, seconds: float) -> str:
    """Kills, minutes and kills a minute in words."""
    rate = 60 * kills / max(seconds, 1e-9)
    return f"{counted(kills, 'checked SIGKILL')} in {seconds / 60:.1f} minutes, {rate:.1f} a minute"


@dataclass(frozen=True, slots=True)
class Result:
    """What a campaign showed.

    Attributes:
        job: its place.
        seed: what its schedules were drawn from.
        judgement: of the run that failed; of all of them together where none did.
        plays: schedules that were played.
        kills: drivers that SIGKILL ended, each followed by a look at every sink.
        seconds: wall time of the whole run: servers, the run without faults, schedules, and verdicts.
        matrix: what came to act where.
        schedule: the one that failed, made smaller; ``None`` where none did.
        folder: with the schedule and the history of a failure.
    """

    job: str
    seed: int
    judgement: Judgement
    plays: int
    kills: int
    seconds: float
    matrix: Matrix
    schedule: Schedule | None
    folder: Path

    @property
    def verdict(self) -> Verdict:
        """Clean, an anomaly, or nothing proven."""
        return self.judgement.verdict

    @property
    def anomalies(self) -> tuple[str, ...]:
        """Names of the anomalies, in their order."""
        return tuple(dict.fromkeys(str(finding.anomaly) for finding in self.judgement.findings))

    @property
    def witnesses(self) -> tuple[str, ...]:
        """Identities of at most five rows that show the first anomaly."""
        return next((finding.witnesses for finding in self.judgement.findings), ())

    @property
    def rate(self) -> float:
        """Kills a minute of the whole run."""
        return 60 * self.kills / self.seconds if self.seconds else 0.0

    @property
    def schedule_file(self) -> Path:
        """Where the schedule of a failure lies."""
        return self.folder / SCHEDULE_FILE

    @property
    def replay(self) -> str:
        """The command that plays the failure again; empty where there is none."""
        return f"onceonly lab replay {shlex.quote(str(self.schedule_file))}" if self.schedule else ""

    def assert_exactly_once(self) -> None:
        """Raise unless every row was written once, and enough went wrong to tell.

        Raises:
            NotExactlyOnce: an anomaly.
            NothingProven: no anomaly, and too little was reached.
        """
        if self.verdict is Verdict.ANOMALY:
            raise NotExactlyOnce(str(self))
        if self.verdict is Verdict.INCONCLUSIVE:
            raise NothingProven(str(self))

    def lines(self) -> Iterator[str]:
        """The result in words."""
        yield from self.findings()
        yield from self.matrix.lines()
        yield self.sentence

    @property
    def sentence(self) -> str:
        """Verdict, seed, kills and cells in one line."""
        return (
            f"{self.verdict}: {self.job}, seed {self.seed}: {counted(self.plays, 'schedule')}, "
            f"{told_kills(self.kills, self.seconds)}; {self.matrix.sentence}"
        )

    def findings(self) -> Iterator[str]:
        """What was found, how to see it again, and what was never reached."""
        for finding in self.judgement.findings[:_MOST_FINDINGS]:
            yield f"{finding.anomaly}: {finding.must_hold}"
            rows = f"; for example {', '.join(finding.witnesses)}" if finding.witnesses else ""
            yield f"  {finding.sink or self.job}: {finding.what}{rows}"
        more = len(self.judgement.findings) - _MOST_FINDINGS
        if more > 0:
            yield f"  and {counted(more, 'finding')} more"
        if self.schedule is not None:
            yield f"  schedule: {self.schedule.line}"
            yield f"  again:    {self.replay}"
            yield f"  history:  {self.folder / 'history.jsonl'}"
        for reason in self.judgement.missing:
            yield f"inconclusive: {reason}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """The result as values."""
        return {
            **self.judgement.to_json(),
            "job": self.job,
            "seed": self.seed,
            "schedules": self.plays,
            "kills": self.kills,
            "seconds": round(self.seconds, 1),
            "kills_a_minute": round(self.rate, 1),
            "passed": {str(point): times for point, times in self.matrix.passed.items()},
            **self.matrix.to_json(),
            "schedule": self.schedule and self.schedule.to_json(),
            "replay": self.replay,
        }

    def save(self) -> None:
        """Write the schedule of a failure to where :attr:`replay` looks for it."""
        if self.schedule is not None:
            self.schedule_file.write_text(self.schedule.text, encoding="utf-8")
            (self.folder / "result.json").write_text(json.dumps(self.to_json(), indent=1), encoding="utf-8")
