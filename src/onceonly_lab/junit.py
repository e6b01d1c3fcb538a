"""A judgement as JUnit XML, one case per anomaly, so that a build server shows which promise broke. Pure."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

from onceonly_lab.checker import MUST_HOLD, Anomaly, Finding, Judgement

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
