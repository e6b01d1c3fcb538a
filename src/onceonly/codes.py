"""The catalogue of codes: one entry each, in the order of their families. Codes are stable; texts are snapshot-tested."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """The texts of one code. ``{name}`` stands for a detail that whoever raises it must give.

    Attributes:
        what: what happened; the first line of the message.
        matter: why it matters, and what was not done.
        cause: the most likely cause.
        remedy: the next command or change; only what applies.
    """

    what: str
    matter: str
    cause: str
    remedy: str


_CONFIGURATION = {
    "E101": Entry(
        "The query has no name, and exactly_once() was given none.",
        "The pipeline's name is what ties a restart to the rows already written. Spark's query id cannot: it changes with the checkpoint. Nothing was written.",
        "neither .queryName(...) nor name= was set",
        'add .queryName("orders") to the writeStream, or exactly_once(..., name="orders")',
    ),
    "E102": Entry(
        "{problem}",
        "Every sink needs an id that is unique in its pipeline. Nothing was written.",
        "the sinks given to exactly_once() do not form one epoch",
        "{next}",
    ),
    "E103": Entry(
        'Pipeline "{pipeline}" is already being written by run {run} in this process.',
        "Two live queries under one name would take turns fencing each other out. Nothing was written.",
        "the same wrapper or the same name= was given to two running queries",
        'stop the first query, or give each its own name: exactly_once(..., name="{pipeline}-2")',
    ),
    "E104": Entry(
        'Query "{query}" runs in a mode that foreachBatch epochs cannot be built on: {mode}.',
        "In this mode a repeated batch may be cut differently, so no epoch can be proven. Nothing was written.",
        "the trigger or a Spark setting",
        "{next}",
    ),
    "E105": Entry(
        'Query "{query}" uses a temporary checkpoint ({checkpoint}).',
        "It is gone after a restart, and with it the place where the stream stands. Nothing was written.",
        "no checkpointLocation was set",
        'add .option("checkpointLocation", "/a/lasting/path") to the writeStream',
    ),
    "E106": Entry(
        "The stream runs on Spark Connect, which is not supported yet.",
        "On Connect the callback runs in a server process that cannot see the query's offsets. Nothing was written.",
        "the session was built with .remote(...) or SPARK_REMOTE is set",
        "run the query with a classic session: SparkSession.builder.master(...) without .remote()",
    ),
    "E107": Entry(
        "No place for the ledger: the checkpoint {checkpoint} is remote and no sink is a Postgres database.",
        "The ledger is the pipeline's index and history. Nothing was written.",
        "ledger= was not given",
        'name one: exactly_once(..., ledger="postgresql://..." or "sqlite:////path/ledger.db")',
    ),
    "E108": Entry(
        "{what} needs {package}, which is not installed.",
        "The sink cannot be built without its driver.",
        "onceonly was installed without the extra",
        "pip install 'onceonly[{extra}]'",
    ),
    "E109": Entry(
        'Query "{query}" keeps state and its plan is not deterministic: {expression}.',
        "After a crash Spark recomputes the batch; its state would no longer agree with the rows already written. Nothing was written.",
        "an expression that gives another value when it is run again",
        "compute the value before the stateful operator from the data itself (e.g. from the source's timestamp or offset), or write it to a table first",
    ),
    "E110": Entry(
        "{problem}",
        "The call cannot work as written. Nothing was written.",
        "{cause}",
        "{next}",
    ),
    "E111": Entry(
        "PySpark {pyspark} and Delta {delta} do not fit.",
        "Spark would fail to start, showing only JAVA_GATEWAY_EXITED.",
        "delta-spark publishes one jar per Spark minor version, and none for this pair",
        "pip install 'pyspark=={good_pyspark}' 'delta-spark=={good_delta}'",
    ),
    "E112": Entry(
        "{path} is on S3 and this Spark session writes it with the single-driver log store.",
        "That store lets two writers commit one version; beside deltalake, rows would be lost. Nothing was written.",
        "spark.delta.logStore.s3.impl (or the default S3SingleDriverLogStore)",
        'set spark.delta.logStore.s3a.impl to io.delta.storage.S3DynamoDBLogStore, or write with DeltaSink(..., committer="log") only',
    ),
    "E113": Entry(
        "This is PySpark {found}; onceonly reads the internals of PySpark {supported} only.",
        "The query's offsets are read from places that move between releases. Nothing was written.",
        "another PySpark is installed",
        "pip install 'pyspark=={supported}'",
    ),
    "E114": Entry(
        "No place to stage rows for several sinks: the checkpoint {checkpoint} is remote.",
        "Every sink must get the same bytes, so they are written once beside the checkpoint. Nothing was written.",
        "staging= was not given",
        'name a directory that driver and executors share: exactly_once(..., staging="/shared/staging")',
    ),
    "E115": Entry(
        'Query "{query}" can never be trimmed: {reason}.',
        'overlap="trim" leaves rows out by their position in the source: topic, partition and offset, or file_path. Nothing was written.',
        'the query was given overlap="trim", and its plan or its columns do not allow it',
        "keep those columns up to exactly_once() and drop them with before=, if they are not wanted in the sink "
        '(files: .select("*", "_metadata.file_path")); or leave overlap= out',
    ),
    "E116": Entry(
        'Query "{query}" reads {source} with failOnDataLoss=false.',
        "Spark would read fewer rows than the offsets of a batch say and carry on. Nothing was written.",
        "the option was set to get past offsets that the brokers no longer have",
        "leave failOnDataLoss at its default, with which Spark stops and names what is gone",
    ),
}

_IDENTITY = {
    "E201": Entry(
        '{sink} already holds rows, and none of them were written by pipeline "{pipeline}".',
        "It cannot be known whether they already contain what the stream is about to write. Nothing was written.",
        "the first run on a table that something else has filled, or another name= than last time (known here: {known})",
        'empty the table, or say where it stands: exactly_once(..., adopt="here") keeps the rows and starts after them',
    ),
    "E202": Entry(
        '{sink} is not listed by epoch {epoch} of pipeline "{pipeline}" and it holds rows.',
        "A sink joins a running pipeline at the next epoch; rows already there may be the same ones. Nothing was written.",
        "a new sink was added to exactly_once()",
        'empty it, or exactly_once(..., adopt="here")',
    ),
    "E203": Entry(
        'Query "{pipeline}" offers {range}, but {sink} already holds up to {end} (epoch {epoch}).',
        "Nothing was written. Going on would write rows a second time.",
        "{cause}",
        "put the checkpoint back:      onceonly checkpoint rebuild {checkpoint} --query {pipeline} --ledger {ledger}\n"
        "or see where it stands:       onceonly checkpoint offsets --query {pipeline} --ledger {ledger}\n"
        "or write them again on purpose: onceonly queries adopt {pipeline} --ledger {ledger} --overlap accept-duplicates{trim}",
    ),
    "E204": Entry(
        'Query "{pipeline}" offers {range}, but {sink} ends at {end} (epoch {epoch}): what lies between was never written.',
        "Nothing was written. Going on would lose those rows.",
        "{cause}",
        "put the checkpoint back:      onceonly checkpoint rebuild {checkpoint} --query {pipeline} --ledger {ledger}\n"
        "or give the range up by name: onceonly queries adopt {pipeline} --ledger {ledger} --accept-loss",
    ),
    "E205": Entry(
        'Batch {batch} of query "{pipeline}" was epoch {epoch} with {recorded}; now it comes with {offered}.',
        "One batch id stands for two different ranges. Nothing was written.",
        "the checkpoint was rolled back, edited or copied, and Spark cut the batch anew",
        "put that batch's entry back:  onceonly checkpoint rebuild {checkpoint} --query {pipeline} --ledger {ledger} --entry {batch}\n"
        "or, if more than one is wrong, rebuild all of it in a new place: onceonly checkpoint rebuild NEW_PATH --query {pipeline} --ledger {ledger}",
    ),
    "E206": Entry(
        'Query "{pipeline}" keeps state and comes with another checkpoint (query id {offered}, before {recorded}).',
        "Its state (windows, seen keys) is gone: results would be wrong from the first row. Nothing was written.",
        "the checkpoint was deleted or replaced",
        "restore the old checkpoint from a backup; or accept that state starts empty: onceonly queries adopt {pipeline} --ledger {ledger} --accept-state-loss",
    ),
    "E207": Entry(
        "{sink} stands at epoch {found}, but it once confirmed epoch {receipt}.",
        "Epochs that were committed are gone from the sink. Nothing was written.",
        "the sink was restored from a backup, or a standby that lagged was promoted",
        "stop every driver, then either restore a newer backup, or accept the loss by name: onceonly queries adopt {pipeline} --ledger {ledger} --accept-loss",
    ),
    "E208": Entry(
        "{sink} is not the table it was: {was} before, {now} now.",
        "It was dropped and created again or replaced; what it held is gone. Nothing was written.",
        "DROP + CREATE, CREATE OR REPLACE, or another database behind the same name",
        "put the old table back, or accept the loss by name: onceonly queries adopt {pipeline} --ledger {ledger} --accept-loss",
    ),
    "E209": Entry(
        "{sink} was changed by somebody else since epoch {epoch}: {event}.",
        "Rows of committed epochs may be gone or doubled. Nothing was written.",
        "a RESTORE, overwrite or delete, not done by this pipeline",
        "check the rows with:        onceonly audit --query {pipeline} --ledger {ledger}\n"
        "or, if they are as wanted: onceonly queries adopt {pipeline} --ledger {ledger} --accept-change",
    ),
    "E210": Entry(
        "The ledger's epoch {epoch} and {sink} disagree about what that epoch was.",
        "Two histories exist under one name. Nothing was written.",
        "two pipelines share the name, or the ledger belongs to another environment",
        "give one of them its own name=, or point ledger= at the right ledger; the sink is the truth: onceonly ledger rebuild --query {pipeline} --ledger {ledger}",
    ),
    "E211": Entry(
        'Query "{pipeline}" starts anew (query id {offered}, before {recorded}) and its source does not say where.',
        "Whether it repeats or skips rows of {sink} (epoch {epoch}, up to {end}) cannot be proven. Nothing was written.",
        "the checkpoint was deleted or moved",
        "put the checkpoint back:      onceonly checkpoint rebuild {checkpoint} --query {pipeline} --ledger {ledger}\n"
        "or see where it stands:       onceonly checkpoint offsets --query {pipeline} --ledger {ledger}\n"
        "or, the source starting where epoch {epoch} ended: onceonly queries adopt {pipeline} --ledger {ledger} --continue\n"
        "or, writing rows again on purpose: onceonly queries adopt {pipeline} --ledger {ledger} --overlap accept-duplicates{trim}",
    ),
    "E212": Entry(
        'The sources of query "{pipeline}" are not those of epoch {epoch}: {was} before, {now} now.',
        "Offsets of one source mean nothing for another. Nothing was written.",
        "a source was removed, reordered or pointed elsewhere",
        "restore the sources; or, the new ones going on where the old ones ended: onceonly queries adopt {pipeline} --ledger {ledger} --continue",
    ),
    "E213": Entry(
        '{sink} belongs to pipeline "{pipeline}" since epoch {first} but was not given to exactly_once().',
        "It would fall behind the others for good. Nothing was written.",
        "a sink was removed from the call, or its id= changed",
        "give it back; or take it out of the pipeline by name: onceonly queries drop-sink {pipeline} '{sink}' --ledger {ledger} --accept-loss",
    ),
    "E214": Entry(
        'Epoch {epoch} of pipeline "{pipeline}" needs input that is gone: {missing}.',
        "Spark would read zero rows in its place and carry on. Nothing was written.",
        "the files of a batch that was planned but not yet written were deleted or moved",
        "put the files back and restart the query; or give them up by name: onceonly queries adopt {pipeline} --ledger {ledger} --accept-loss",
    ),
    "E215": Entry(
        'Batch {batch} of query "{pipeline}" was run again and gave other rows ({now}) than epoch {epoch} holds ({was}).',
        "Spark's state no longer agrees with the sink. The rows in the sink were not touched.",
        "the query's code or its static tables changed between the crash and the restart",
        "put the old code back for one run; see what was written: onceonly epochs show {epoch} --query {pipeline} --ledger {ledger}\n"
        "or let the state be what it has become, the rows staying as they are: onceonly queries adopt {pipeline} --ledger {ledger} --keep-recomputed-state",
    ),
    "E216": Entry(
        "{sink} stands at epoch {epoch}, but where in the source that is can no longer be read.",
        "The sink's history was cleaned away and the ledger does not hold it. Nothing was written.",
        "log retention passed while the pipeline was stopped, and the ledger was lost",
        "restore the ledger from a backup\n"
        "or, the batch that was just refused being the next one: onceonly queries adopt {pipeline} --ledger {ledger} {where} --continue\n"
        "or, saying where the next batch starts: onceonly queries adopt {pipeline} --ledger {ledger} {where} --start OFFSETS",
    ),
    "E217": Entry(
        'Query "{pipeline}" goes on from {start}, but {sink} holds nothing of it.',
        "Everything the query has read before would be missing from the sink. Nothing was written.",
        "the sink is new to a query that is already running, or the table and the ledger were both lost",
        'to start filling it from here on purpose: exactly_once(..., adopt="here"); to fill it from the beginning: give the query a new checkpoint',
    ),
    "E218": Entry(
        'adopt= says that the sink of "{pipeline}" stands at {stated}, but the query offers to go on from {start}.',
        "The rows between would be lost or doubled. Nothing was written.",
        "the offsets were copied from another epoch or another source",
        'start the source at the offsets in adopt=, or use adopt="here" to go on from {start}',
    ),
    "E219": Entry(
        '{sinks} stand one epoch behind the other sinks of pipeline "{pipeline}" (epoch {epoch}) and cannot be brought to it: {reason}.',
        "Going on would leave a hole in them. Nothing was written.",
        "the staging directory was removed, or lies on a disk of another machine",
        "restore the staging directory, or accept the loss by name: onceonly queries adopt {pipeline} --ledger {ledger} --accept-loss",
    ),
    "E220": Entry(
        'Query "{pipeline}" offers rows that {sink} may hold (up to {end}, epoch {epoch}), and which ones cannot be proven: {reason}.',
        "Only rows whose position is proven to be in an epoch are left out. Nothing was written.",
        "the checkpoint was deleted, moved or rolled back",
        "put the checkpoint back:      onceonly checkpoint rebuild {checkpoint} --query {pipeline} --ledger {ledger}\n"
        "or see where it stands:       onceonly checkpoint offsets --query {pipeline} --ledger {ledger}\n"
        "or write them again on purpose: onceonly queries adopt {pipeline} --ledger {ledger} --overlap accept-duplicates",
    ),
}

_OUTCOME = {
    "E301": Entry(
        "Whether epoch {epoch} reached {sink} is not known: the answer to its commit was lost ({reason}).",
        "It is there completely or not at all. It was neither assumed nor written again.",
        "the destination went away while it was committing",
        "bring the destination back and restart the query; to settle it without Spark: onceonly txn resolve --query {pipeline} --ledger {ledger}",
    ),
    "E302": Entry(
        "{sink} lost the answer to a fence {times} times.",
        "Nobody owns the pipeline for certain, so nothing was written.",
        "the connection to the destination is unstable",
        "restart the query when the destination answers",
    ),
}

_FENCED = {
    "E401": Entry(
        "{sink} is owned by a newer driver (generation {theirs}, ours was {ours}).",
        "This driver wrote nothing more and must not: the other one goes on from the same place.",
        "the query was started elsewhere while this one was still alive, or the checkpoint was copied",
        "stop this query. To take the pipeline back, stop the other driver first, then restart here",
    ),
    "E402": Entry(
        'A callback of run {run} of "{pipeline}" woke up after a newer run had started.',
        "It wrote nothing.",
        "query.stop() returned before the callback had ended",
        "nothing to do: the newer run goes on. Await the old query's termination before a restart to avoid this",
    ),
    "E403": Entry(
        'Pipeline "{pipeline}" could not be opened: another driver raised the fence {times} times in a row.',
        "Two drivers are being started over and over. Nothing was written.",
        "two deployments of one job",
        "stop one of them, then restart",
    ),
}

_DESTINATION = {
    "E501": Entry(
        "{sink} cannot be reached: {reason}.",
        "Nothing of this epoch was written.",
        "the server is down, the address or the login is wrong, or the network is cut",
        "check it with: onceonly doctor --sink '{address}'; then restart the query",
    ),
    "E502": Entry(
        "{sink} refused the login or a right: {reason}.",
        "Nothing of this epoch was written.",
        "wrong user or password, or a missing grant",
        "{next}",
    ),
    "E503": Entry(
        "{sink} cannot hold a value of column {column}: {reason}.",
        "Nothing of this epoch was written; the rows before it are untouched.",
        "the column's type in the destination is narrower than in the batch",
        "{next}",
    ),
    "E504": Entry(
        "{sink} got rows whose key ({key}) is null: {count}.",
        "A null key equals nothing, so an upsert cannot find its row. Nothing of this epoch was written.",
        "missing values in the key columns",
        "filter or fill the key columns before the sink, e.g. with before=",
    ),
    "E505": Entry(
        "{sink} got several rows for one key ({key}) in one epoch, e.g. {example}.",
        "Which one is newest cannot be known. Nothing of this epoch was written.",
        "the batch holds more than one change of a row",
        "{next}",
    ),
    "E506": Entry(
        "{sink} and the batch do not have the same columns: {difference}.",
        "Nothing of this epoch was written.",
        "the query or the table was changed between two epochs",
        "{next}",
    ),
    "E507": Entry(
        "{sink} has no room or no right to write: {reason}.",
        "Nothing of this epoch was written.",
        "the disk is full, or the destination is read-only",
        "make room or make it writable, then restart the query",
    ),
    "E508": Entry(
        "{sink} cannot be used: {reason}.",
        "Nothing was written.",
        "{cause}",
        "{next}",
    ),
    "E509": Entry(
        "{sink} forgets markers after {retention}.",
        "A stop longer than that would make the table look unwritten. Nothing was written.",
        "delta.setTransactionRetentionDuration is set on the table",
        "ALTER TABLE ... UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')",
    ),
    "E510": Entry(
        "{sink} took {written} rows of epoch {epoch}, but {counted} were computed.",
        "The epoch was not committed.",
        "rows changed while they were read, or a staging file was damaged",
        "restart the query; it computes the epoch again",
    ),
    "E511": Entry(
        "The ledger {ledger} cannot be written: {reason}.",
        "Nothing of this epoch was written. The rows in the sinks are safe: the ledger is only their index.",
        "a read-only file or database, a full disk, or a wrong address",
        "make it writable, or start a new one: exactly_once(..., ledger=...), which is filled from the sinks",
    ),
    "E512": Entry(
        "{sink}: {number} does not fit the marker format.",
        "Nothing was written.",
        "more than 2**23 openings or 2**40 epochs",
        "start a new pipeline name",
    ),
    "E513": Entry(
        "{sink}: epoch {epoch} kept its transaction open for {seconds} s; the brokers end one after {limit} s.",
        "Nothing of this epoch was written.",
        "computing and sending the batch takes longer than kafka.transaction.timeout.ms",
        "set kafka.transaction.timeout.ms to {enough} in options= of KafkaSink (transaction.max.timeout.ms of the brokers must allow it), or make batches smaller, e.g. with maxOffsetsPerTrigger",
    ),
    "E514": Entry(
        "{sink}: a transaction in {topic}, partition {partition}, has no visible end: readers stop at offset {stable}.",
        "It may be a committed epoch that the brokers have not shown yet; writing now would decide its fate. Nothing was written.",
        "another writer keeps a transaction open, or the brokers lost its end when they were killed",
        "find it with: kafka-transactions.sh --bootstrap-server {servers} find-hanging --broker-id ID --topic {topic} --partition {partition}; "
        "a transaction that is open ends by itself, one that hangs needs the same tool's abort; then restart the query",
    ),
    "E515": Entry(
        'The rows of epoch {epoch} of pipeline "{pipeline}" cannot be staged in {directory}: {reason}.',
        "Nothing of this epoch was written to any sink.",
        "a full or read-only disk",
        "make room, or name another directory that driver and executors share: exactly_once(..., staging='/path')",
    ),
    "E516": Entry(
        'Epoch {epoch} of pipeline "{pipeline}" can reach this sink through Spark only, and there is no Spark session here.',
        "Nothing was written.",
        "a table that only Spark's Delta can write, or a merge beyond the driver's memory",
        "restart the query: it brings the sink to the epoch before it goes on",
    ),
    "E517": Entry(
        "{sink} cannot send a row: {reason}.",
        "Nothing of this epoch was written; a row is never skipped.",
        "{cause}",
        "{next}",
    ),
    "E518": Entry(
        "{sink}: the function given as apply= failed in epoch {epoch} ({reason}).",
        "The epoch was taken back: none of its rows and no marker were written.",
        "its SQL, or what it expects of the rows",
        "correct the function or the rows, then restart the query; it does the epoch again",
    ),
    "E519": Entry(
        "{sink}: the function given as apply= ended the transaction of epoch {epoch} by itself.",
        "Rows and marker become visible in one step or not at all. The marker was not written; what the function did before that end was taken back.",
        "COMMIT or ROLLBACK as SQL, or psycopg.Rollback raised in the function",
        "leave the transaction open: the sink commits it. To give up a part of the work: with cursor.connection.transaction(): ...",
    ),
    "E520": Entry(
        "{sink}: Delta refused to merge epoch {epoch}: {reason}.",
        "Nothing of this epoch was written.",
        "several rows of the batch meet one row of the table, or a condition or value of merge= does not fit the rows",
        "let on= match at most one row of the batch, e.g. with before=, or give key= and sequence= in place of merge=",
    ),
}

_CHECKPOINT = {
    "E601": Entry(
        "{path} has a format this version does not know: {found}.",
        "Offsets read by guess could skip or double rows. Nothing was written.",
        "a newer Spark wrote the checkpoint",
        "use the Spark version onceonly names in: onceonly doctor",
    ),
    "E602": Entry(
        "{path} is missing, empty or torn: {reason}.",
        "What the batch is to read cannot be known. Nothing was written.",
        "the machine lost power while Spark wrote it (local checkpoints are never flushed), or it was edited",
        "onceonly checkpoint rebuild {checkpoint} --query NAME --ledger LEDGER",
    ),
    "E603": Entry(
        "{path} is not a checkpoint: {reason}.",
        "Nothing was read.",
        "a wrong path, or the checkpoint was deleted",
        "give the directory that was set as checkpointLocation; if it is gone: onceonly checkpoint rebuild {path} --query NAME --ledger LEDGER",
    ),
    "E604": Entry(
        'The checkpoint of "{pipeline}" cannot be rebuilt: {reason}.',
        "Nothing was changed.",
        "{cause}",
        "{next}",
    ),
}

_WARNINGS = {
    "W701": Entry(
        "Two sinks of one pipeline write to {target}.",
        "Each keeps its own epochs; rows of both stand in one table.",
        "two sinks with different id= and one destination",
        "ignore this if it is meant",
    ),
    "W702": Entry(
        "The digest leaves out {columns}: an aggregate over floats depends on the order of its rows.",
        "A replay is compared without these columns.",
        "sum() or avg() over float or double in a stateful query",
        "cast to decimal before aggregating to have them compared",
    ),
    "W703": Entry(
        'Pipeline "{pipeline}" goes on with another checkpoint (query id {offered}, before {recorded}).',
        "Its first slice starts exactly where the last epoch ended, so nothing is lost or doubled.",
        "the query was restarted with a new checkpoint and explicit starting offsets",
        "nothing to do",
    ),
}

CATALOGUE: dict[str, Entry] = {
    **_CONFIGURATION,
    **_IDENTITY,
    **_OUTCOME,
    **_FENCED,
    **_DESTINATION,
    **_CHECKPOINT,
    **_WARNINGS,
}
"""Every code, in the order of the families."""
