"""OpenLineage events of an epoch, from the records of its ledger. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from openlineage.client import facet_v2 as v2
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import DatasetFacet, InputDatasetFacet, JobFacet, OutputDatasetFacet, RunFacet

from onceonly_checkpoints.epoch import Columns, EpochRecord, receipts_of
from onceonly_checkpoints.ledger import Event
from onceonly_checkpoints.model import SourceKind

PRODUCER = f"urn:onceonly:{version('onceonly')}"


@dataclass(frozen=True, slots=True)
class Subject:
    """Facts that the events of a pipeline share.

    Attributes:
        namespace: of the job.
        sinks: address of each sink, by its id.
        sources: address of each source, by its id, where a run saw it.
        guarantee: as ``explain()`` gives it, empty if not recorded yet.
        columns: of the rows (empty name) and of each output, as of the epoch.
        plan: text of the plan that the epoch ran, empty if not recorded.
    """

    pipeline: str
    namespace: str
    sinks: Mapping[str, str]
    sources: Mapping[str, str]
    guarantee: str = ""
    columns: Mapping[str, Columns] = field(default_factory=dict[str, Columns])
    plan: str = ""


def run_id(*names: object) -> str:
    """Return the run id of a namespace, a pipeline and an epoch: the same each time that an event is sent."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, ":".join(("urn", "onceonly", *(quote(str(name)) for name in names)))))


def failed(subject: Subject, event: Event) -> RunEvent:
    """Return FAIL of an attempt, with the code of the refusal if it has one. The attempt is a run of its own."""
    facets: dict[str, RunFacet] = {
        "errorMessage": _facet(v2.error_message_run.ErrorMessageRunFacet, event.reason, "PYTHON"),
        "onceonly_refusal": _more(RunFacet, code=event.code, reason=event.reason),
    }
    return _event(subject, RunState.FAIL, event.at_ms, facets, event.epoch, event.at_ms)


def committed(subject: Subject, record: EpochRecord) -> tuple[RunEvent, RunEvent]:
    """Return START and COMPLETE of a committed epoch."""
    epoch, lineage = record.epoch, record.epoch.lineage
    seconds = sum(seconds for _, seconds in record.phases)
    facet = _more(
        RunFacet,
        epoch=epoch.number,
        chain=epoch.chain,
        digest=epoch.digest.to_json(),
        rows=epoch.rows,
        generation=record.fence.generation,
        queryId=lineage.query_id if lineage else "",
        batchId=lineage.batch_id if lineage else -1,
        version=lineage.version if lineage else "",
        adoption=epoch.adoption.words if epoch.adoption else "",
    )
    inputs = _inputs(subject, record)
    begun_ms = record.recorded_ms - round(seconds * 1000)
    start = _event(subject, RunState.START, begun_ms, {}, epoch.number)
    complete = _event(subject, RunState.COMPLETE, record.recorded_ms, {"onceonly_epoch": facet}, epoch.number)
    complete.inputs, complete.outputs = inputs, _outputs(subject, record, inputs)
    return start, complete


def _event(subject: Subject, state: RunState, at_ms: int, facets: dict[str, RunFacet], *names: int) -> RunEvent:
    job: dict[str, JobFacet] = {"jobType": _facet(v2.job_type_job.JobTypeJobFacet, "STREAMING", "ONCEONLY", "QUERY")}
    if subject.guarantee:
        job["onceonly_guarantee"] = _more(JobFacet, guarantee=subject.guarantee)
    at = datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
    run = Run(run_id(subject.namespace, subject.pipeline, *names), facets)
    owner = Job(subject.namespace, subject.pipeline, job)
    return RunEvent(eventTime=at, eventType=state, run=run, job=owner, producer=PRODUCER)


def _facet(facet: Any, *values: object, **named: object) -> Any:
    return facet(*values, producer=PRODUCER, **named)


def _more(facet: Any, **values: object) -> Any:
    """Return a facet of ours: members beside those of the base."""
    return _facet(facet).with_additional_properties(**values)


# ---- Inputs: offsets, versions and files.


def _inputs(subject: Subject, record: EpochRecord) -> list[InputDataset]:
    epoch = record.epoch
    starts, ends = epoch.written.start.parsed, epoch.written.end.parsed
    identities = {identity.source: identity for identity in epoch.sources}
    inputs: list[InputDataset] = []
    for source, end in ends.items():
        identity, start = identities.get(source), starts.get(source)
        kind = identity.kind if identity else SourceKind.UNNAMED
        address = subject.sources.get(source) or (identity.folder or identity.name if identity else "")
        files = [file.path for file in record.files if file.source == source]
        if kind is SourceKind.KAFKA and isinstance(end, Mapping):
            namespace = subject.sources.get(source) or "kafka://unknown"
            parts = [((namespace, topic), _of(start, topic), offsets) for topic, offsets in end.items()]
        else:
            parts = [(dataset_of(address) if address else ("onceonly", f"source {source}"), start, end)]
        for (namespace, name), begun, ended in parts:
            facet = _more(InputDatasetFacet, source=source, start=begun, end=ended, files=files)
            count = _facet(
                v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
                rowCount=epoch.came if len(ends) == len(parts) == 1 else None,
                fileCount=len(files) if files else None,
            )
            of_dataset: dict[str, DatasetFacet] = {}
            if (at := _of(ended, "reservoirVersion")) is not None:
                of_dataset["version"] = _facet(v2.dataset_version_dataset.DatasetVersionDatasetFacet, str(at))
            facets: dict[str, InputDatasetFacet] = {"onceonly_range": facet, "inputStatistics": count}
            inputs.append(InputDataset(namespace, name, facets, facets=of_dataset))
    return inputs


def _of(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


# ---- Outputs: rows, receipts, columns.


def _outputs(subject: Subject, record: EpochRecord, inputs: Sequence[InputDataset]) -> list[OutputDataset]:
    epoch, receipts = record.epoch, receipts_of(record)
    has_one_source = len(epoch.written.end.entries) == 1
    origins = column_origins(subject.plan) if has_one_source else {}
    outputs: list[OutputDataset] = []
    for sink, _ in epoch.sinks:
        namespace, name = target_of(subject.sinks.get(sink, sink))
        output, receipt = epoch.output(sink), receipts.get(sink)
        columns = subject.columns.get(output.name if output else "", ())
        facets: dict[str, DatasetFacet] = {}
        if columns:
            fields = [v2.schema_dataset.SchemaDatasetFacetFields(column, kind) for column, kind, _ in columns]
            facets["schema"] = _facet(v2.schema_dataset.SchemaDatasetFacet, fields)
        known = {column: origins[column] for column, _, _ in columns if not output and column in origins}
        if known:
            lineage = {column: _fields(sorted(names), inputs) for column, names in known.items()}
            facets["columnLineage"] = _facet(v2.column_lineage_dataset.ColumnLineageDatasetFacet, lineage)
        if receipt and (at := receipt.at("version")) is not None:
            facets["version"] = _facet(v2.dataset_version_dataset.DatasetVersionDatasetFacet, str(at))
        if epoch.replaces:
            facets["lifecycleStateChange"] = _facet(
                v2.lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet,
                v2.lifecycle_state_change_dataset.LifecycleStateChange.OVERWRITE,
            )
        statistics = _facet(
            v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
            rowCount=epoch.digest_in(sink).rows,
        )
        of_output: dict[str, OutputDatasetFacet] = {"outputStatistics": statistics}
        if receipt:
            of_output["onceonly_receipt"] = _more(OutputDatasetFacet, **receipt.to_json())
        outputs.append(OutputDataset(namespace, name, of_output, facets=facets))
    return outputs


def _fields(names: Sequence[str], inputs: Sequence[InputDataset]) -> v2.column_lineage_dataset.Fields:
    return v2.column_lineage_dataset.Fields(
        [v2.column_lineage_dataset.InputField(part.namespace, part.name, name) for part in inputs for name in names]
    )


# ---- Names of datasets, after OpenLineage's page on naming. No login goes into a name.


def dataset_of(path: str) -> tuple[str, str]:
    """Return namespace and name of a path or URL."""
    url = urlsplit(path)
    if url.scheme in ("", "file"):
        return "file", unquote(url.path) if url.scheme else path
    login, _, host = url.netloc.rpartition("@")
    netloc = url.netloc if login and ":" not in login and url.scheme.startswith("abfs") else host
    scheme = "s3" if url.scheme in ("s3a", "s3n") else url.scheme
    return f"{scheme}://{netloc}", url.path.lstrip("/") or "/"


def target_of(address: str) -> tuple[str, str]:
    """Return namespace and name of a sink's address."""
    kind, _, rest = address.partition(":")
    if kind == "kafka":
        servers, _, topic = rest.partition("/")
        return f"kafka://{servers.partition(',')[0]}", topic.partition("?")[0] or "*"
    if kind == "postgres":
        from psycopg.conninfo import conninfo_to_dict

        conninfo, _, target = rest.rpartition("#")
        server = conninfo_to_dict(conninfo)
        table = unquote(target.partition("?")[0]).replace('"', "")
        host, port = (str(server.get(name, of)).partition(",")[0] for name, of in (("host", ""), ("port", "5432")))
        host = "localhost" if host.startswith("/") else host or "localhost"  # a path is the directory of a socket
        where = table if "." in table else f"public.{table}"
        return f"postgres://{host}:{port}", f"{server.get('dbname', '')}.{where}"
    path = rest.partition("#")[0]
    return dataset_of(path) if kind == "delta" else ("onceonly", f"{kind}:{path}")


# ---- Column lineage, from the plan's text in the ledger (``spark.fingerprint.spell``).

_LINE = re.compile(r"(?P<depth>(?:  )*)(?:(?P<part>\w+): )?(?P<kind>\w+)(?P<fields>.*)")
_ID = re.compile(r" exprId=#(\d+)\b")
_NAME = re.compile(r" name=(.*?)(?= \w+=|$)")


def column_origins(plan: str) -> dict[str, frozenset[str]]:
    """Return the input columns of each written column that the plan shows whole.

    Empty for a plan of several relations, or of a union: a column then has more than one origin.
    """
    lines = [match for text in plan.splitlines() if (match := _LINE.fullmatch(text))]
    plans = [at for at, line in enumerate(lines) if not line["depth"] and not line["fields"].startswith(" delay")]
    if len(plans) < 2 or any(line["kind"] == "Union" for line in lines):
        return {}
    stream, written = lines[plans[0] : plans[1]], lines[plans[1] :]
    if sum(line["kind"] == "relation" for line in stream) != 1:
        return {}
    leaves = {_id(line): _name(line) for line in stream if line["part"] == "column"}
    made: dict[str, set[str]] = {}
    open_aliases: list[tuple[int, str]] = []
    named: dict[str, str] = {}
    for at, line in enumerate((*stream, *written)):
        depth, id_ = len(line["depth"]) // 2, _id(line)
        open_aliases = [alias for alias in open_aliases if alias[0] < depth]
        if line["kind"] == "AttributeReference" and line["part"] != "column":
            for _, alias in open_aliases:
                made[alias].add(id_)
        if line["kind"] == "Alias" and id_:
            made.setdefault(id_, set())
            open_aliases.append((depth, id_))
        if at > len(stream) and depth == 1 and line["part"] == "projectList":
            named[_name(line)] = id_
    found = {name: _leaves(id_, made, leaves) for name, id_ in named.items()}
    return {name: origins for name, origins in found.items() if origins}


def _id(line: re.Match[str]) -> str:
    match = _ID.search(line["fields"])
    return match[1] if match else ""


def _name(line: re.Match[str]) -> str:
    match = _NAME.search(line["fields"])
    return match[1] if match else ""


def _leaves(id_: str, made: Mapping[str, set[str]], leaves: Mapping[str, str]) -> frozenset[str]:
    """Return names of the relation's columns below an expression. Empty if one of them has another origin."""
    waiting, seen, names = [id_], {id_}, set[str]()
    while waiting:
        current = waiting.pop()
        if current in leaves:
            names.add(leaves[current])
        elif current in made:
            waiting += made[current] - seen
            seen |= made[current]
        else:
            return frozenset()
    return frozenset(names)
