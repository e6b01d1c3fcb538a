"""Catalogue of audit codes: severity, verdict, meaning, remedy. Codes are stable."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly_checkpoints.strenum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"


class Verdict(StrEnum):
    """The answer of an audit, from worst to best."""

    GAPS = "GAPS"
    DUPLICATES = "DUPLICATES"
    IN_DOUBT = "IN DOUBT"
    CANNOT_TELL = "CANNOT TELL"
    NOT_COUNTED = "NOT COUNTED"
    EXACTLY_ONCE = "EXACTLY ONCE"


CLEAN, FINDINGS, UNANSWERED, UNCOUNTED, PLANNED = range(5)
"""Exit codes of all commands: clean or done, something to do, no answer, rows not counted, a plan without ``--yes``."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The texts of one code.

    ``severity``: ``info`` findings change the exit code only with ``--fail-on info``. ``verdict`` is caused by the
    finding, ``None`` for no effect. ``remedy`` has details in braces, see ``Finding.advised``.
    """

    title: str
    severity: Severity
    verdict: Verdict | None
    meaning: str
    remedy: str


_READING = {
    "A101": Rule(
        "A sink cannot be read.",
        Severity.ERROR,
        Verdict.CANNOT_TELL,
        "Nothing is known about its rows.",
        "bring it back, check it with: onceonly doctor --sink {address}; then audit again (an address holds no "
        "password: it comes from PGPASSWORD, ~/.pgpass or the file of PGSERVICEFILE)",
    ),
    "A102": Rule(
        "No sink holds a marker of this pipeline.",
        Severity.ERROR,
        Verdict.CANNOT_TELL,
        "There is nothing to audit: the name or the addresses are wrong, or nothing was ever written.",
        "see the names known here: onceonly status; name the sinks with --sink KIND:TARGET",
    ),
    "A103": Rule(
        "The sink no longer remembers its first epochs; the ledger does.",
        Severity.INFO,
        None,
        "Its records hash into the oldest marker, so offset ranges and digests are proven, and rows where they are "
        "counted.",
        "nothing to do; a longer log retention keeps more of the history in the sink",
    ),
    "A104": Rule(
        "The sink no longer remembers its first epochs, and nothing else proves them.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "The content of those epochs can no longer be checked. Later epochs are checked.",
        "restore the ledger from a backup, if you have one, and audit again",
    ),
    "A105": Rule(
        "The pipeline has not written an epoch yet.",
        Severity.INFO,
        Verdict.CANNOT_TELL,
        "There is nothing to compare.",
        "audit again after the first batch",
    ),
    "A106": Rule(
        "The ledger cannot be read.",
        Severity.WARN,
        None,
        "The sinks are judged by their markers alone. Without the ledger, a restored sink cannot be seen.",
        "make it readable, or fill a new one: onceonly recover rebuild-ledger --query {pipeline} --sink "
        "{address}{ledger}",
    ),
    "A107": Rule(
        "A sink of the pipeline was not audited.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "The newest marker in the other sinks lists this sink, and nothing is known about its rows.",
        "name it too: --sink KIND:TARGET",
    ),
    "A108": Rule(
        "There is no epoch to judge: all come before the first one that you asked for.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "Nothing was compared.",
        "give a lower --since; see the epochs: onceonly epochs list --query {pipeline}{where}",
    ),
    "A109": Rule(
        "The content of rows cannot be compared: CANNOT TELL for it.",
        Severity.INFO,
        Verdict.CANNOT_TELL,
        "Their number may be right and a value in them wrong.",
        "nothing to do, unless another finding names a change of the target; an epoch column in the sink helps",
    ),
}

_HISTORY = {
    "A110": Rule(
        "A marker does not match its hash.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "The marker was changed after it was written, or by another program.",
        "find out who wrote to the marker tables or the table's log of {sink}; restore them from a backup",
    ),
    "A111": Rule(
        "The marker of an epoch is missing between two others.",
        Severity.ERROR,
        Verdict.GAPS,
        "Epochs are numbered without a gap: the sink has lost the record of one.",
        "restore the markers of {sink} from a backup; see the ledger's record: onceonly epochs show {epoch} --query"
        " {pipeline}",
    ),
    "A112": Rule(
        "An epoch does not follow from the one before it.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Two histories are mixed in one sink.",
        "two pipelines share the name, or markers were copied: give one its own name=; see onceonly epochs "
        "show {epoch} --query {pipeline}{where}",
    ),
    "A113": Rule(
        "An epoch starts after the end of the one before it.",
        Severity.ERROR,
        Verdict.GAPS,
        "The rows between were never written.",
        "see the range with: onceonly epochs show {epoch} --query {pipeline}{where}; write it with a one-off job, "
        "or accept the loss",
    ),
    "A114": Rule(
        "An epoch starts before the end of the one before it.",
        Severity.ERROR,
        Verdict.DUPLICATES,
        "The rows between were written twice.",
        "see the range with: onceonly epochs show {epoch} --query {pipeline}{where}; delete the rows of one "
        "of the two epochs",
    ),
    "A115": Rule(
        "An epoch does not start where the one before it ended, and the offsets cannot be ordered.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Rows are missing or duplicated between the two.",
        "compare both with: onceonly epochs show {epoch} --query {pipeline}{where}",
    ),
    "A116": Rule(
        "An operator moved the pipeline's position.",
        Severity.INFO,
        None,
        "An operator gave the range up, or accepted duplicates of it. The guarantee holds before and after it.",
        "nothing to do",
    ),
    "A198": Rule(
        "Whether rows of epochs were written again is not known.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "An operator let the query continue although its batch may repeat these epochs: their files were on no list"
        " any more, or the source has none. If it did, you have their rows twice.",
        "compare the rows of {sink} with the source, above all those of the epoch after the decision: onceonly "
        "epochs list --query {pipeline}{where}",
    ),
    "A117": Rule(
        "One epoch was committed more than once in a sink.",
        Severity.ERROR,
        Verdict.DUPLICATES,
        "Its rows are in the sink more than once.",
        "find both commits: onceonly epochs show {epoch} --query {pipeline}{where}; delete the rows of one of them",
    ),
    "A118": Rule(
        "An epoch was written by an older driver after a newer one had taken over.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "The fence did not hold, or markers were edited.",
        "compare the rows of {sink} from epoch {epoch} on with the source",
    ),
}

_ROWS = {
    "A119": Rule(
        "Rows are not counted in this sink: NOT COUNTED.",
        Severity.INFO,
        Verdict.NOT_COUNTED,
        "Markers, chain and offset ranges prove that each epoch was committed once and none is missing. Whether its"
        " rows are still there is not known. An audit ends with 3 for it, with --uncounted-ok with 0.",
        "compare the rows of {sink} with the source if that matters, and let CI accept it: --uncounted-ok; rows with a"
        " key are never counted, those of an appended Postgres table are by PostgresTuning(epoch_column='_epoch')",
    ),
    "A167": Rule(
        "Rows are put one by one in this sink: CANNOT TELL for rows.",
        Severity.INFO,
        Verdict.CANNOT_TELL,
        "Markers, chain and offset ranges are checked: a marker was put once all rows of its epoch were "
        "acknowledged. After a crash, parts of an epoch remain until its replay, and an older driver or a late "
        "request may have put rows.",
        "nothing to do; compare the rows of {sink} with the source if that matters",
    ),
    "A120": Rule(
        "After changes by other programs, rows cannot be assigned to epochs: CANNOT TELL for rows.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "Markers, chain and offset ranges are checked. Whether the rows of each epoch are still there cannot be "
        "counted.",
        "look at the external changes to {sink}; with Spark, the rows can be hashed instead: onceonly audit --deep "
        "--query {pipeline}{where}",
    ),
    "A121": Rule(
        "Rows of an epoch are missing.",
        Severity.ERROR,
        Verdict.GAPS,
        "The marker vouches for more rows than the sink holds.",
        "{undo}see the input of the epoch: onceonly epochs show {epoch} --query {pipeline}{where}; restore {sink} "
        "from a backup, or, if the source still holds the rows, compute them again into a new table: onceonly "
        "replay run {epoch}..{epoch} --query {pipeline}{ledger} --into KIND:TARGET --with MODULE:FUNCTION",
    ),
    "A122": Rule(
        "An epoch has more rows than were committed.",
        Severity.ERROR,
        Verdict.DUPLICATES,
        "The sink holds more rows than the marker vouches for.",
        "look at the rows of epoch {epoch} in {sink}; delete those that were not written by this pipeline",
    ),
    "A123": Rule(
        "Rows carry the number of an epoch that no marker names.",
        Severity.ERROR,
        Verdict.DUPLICATES,
        "No committed epoch accounts for them.",
        "look at the rows of epoch {epoch} in {sink}; delete them if the source still delivers them, or "
        "restore the marker",
    ),
    "A124": Rule(
        "The sink's receipt and the epoch's digest disagree about the number of rows.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "The sink took another number of rows than were computed.",
        "compare the rows of epoch {epoch} in {sink} with the source",
    ),
    "A125": Rule(
        "Rows differ in an epoch before a loss or change that an operator accepted.",
        Severity.INFO,
        None,
        "An operator accepted the rows of the sink, and the guarantee holds from that adoption on.",
        "nothing to do, if the numbers are those that you accepted",
    ),
    "A126": Rule(
        "Another program restored or replaced the target, or changed rows in it.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Rows of committed epochs may be gone or duplicated, although their markers are there. The query stops at "
        "its next start.",
        "{undo}check the rows; if they are wrong, undo the change or restore {sink} from a backup; if they are "
        "right: {accepts}",
    ),
    "A127": Rule(
        "Something happened to the target that leaves its epochs alone.",
        Severity.INFO,
        None,
        "A failover, or maintenance. The rows of all epochs are there.",
        "nothing to do",
    ),
    "A128": Rule(
        "The target also holds rows that no epoch of this pipeline brought.",
        Severity.INFO,
        None,
        "They were there before, or another program writes there too. The verdict does not cover them.",
        "nothing to do, if you want others to write there; two pipelines that read the same stream duplicate its rows",
    ),
    "A129": Rule(
        "Rows of an epoch are not those that were committed.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "A value in them was changed since, or a row was removed and another one added.",
        "see the input of the epoch: onceonly epochs show {epoch} --query {pipeline}{where}; compare its rows in "
        "{sink} with the source, or restore {sink} from a backup",
    ),
}

_LEDGER = {
    "A130": Rule(
        "The ledger does not know every epoch of the sink.",
        Severity.INFO,
        None,
        "Your rows are not affected: the ledger is an index.",
        "onceonly recover rebuild-ledger --query {pipeline} --sink {address}{ledger}",
    ),
    "A131": Rule(
        "There is no ledger of this pipeline.",
        Severity.INFO,
        None,
        "The sinks are judged by their markers alone. Without the ledger, a restored sink cannot be seen.",
        "onceonly recover rebuild-ledger --query {pipeline} --sink {address}{ledger}",
    ),
    "A132": Rule(
        "The ledger confirms epochs that the sink no longer holds.",
        Severity.ERROR,
        Verdict.GAPS,
        "The sink was restored, created again or failed over: committed rows are gone.",
        "stop every driver; {ways}",
    ),
    "A133": Rule(
        "The ledger and the sink disagree about what an epoch was.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Two histories exist under one name, or one of them was edited.",
        "point --ledger at the right ledger; the sink is the truth: onceonly recover rebuild-ledger --query "
        "{pipeline} --sink {address}",
    ),
    "A134": Rule(
        "The sink is not the table that confirmed the epoch.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "It was dropped and created again, or another one has the same name.",
        "restore the old table, or, if the rows were moved with it: {accepts}",
    ),
    "A135": Rule(
        "The place of an epoch in the sink differs from its receipt.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "The sink's history was rewritten since.",
        "find the program that changed {sink}; compare the rows of epoch {epoch} with the source",
    ),
    "A136": Rule(
        "A record of the ledger does not match its hash.",
        Severity.WARN,
        None,
        "The ledger was edited or damaged; the sinks are not affected.",
        "onceonly recover rebuild-ledger --query {pipeline} --sink {address}{ledger}",
    ),
}

_PIPELINE = {
    "A140": Rule(
        "Two sinks of the pipeline disagree about what an epoch was.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "They do not hold the same rows.",
        "restore the sink that is wrong from a backup; compare: onceonly epochs show {epoch} --query {pipeline}{where}",
    ),
    "A141": Rule(
        "A sink is one epoch behind the others.",
        Severity.WARN,
        Verdict.IN_DOUBT,
        "The epoch is under way, or its driver died between two sinks; the next start finishes it.",
        "restart the query, or without Spark: onceonly recover resolve --query {pipeline}{where}",
    ),
    "A142": Rule(
        "A sink is several epochs behind the others.",
        Severity.ERROR,
        Verdict.GAPS,
        "It was restored, or was left out of the call for a while.",
        "stop every driver; {ways}",
    ),
    "A143": Rule(
        "An epoch is being written.",
        Severity.INFO,
        None,
        "Its driver is running. Each sink holds all of the epoch or nothing.",
        "nothing to do",
    ),
    "A150": Rule(
        "An epoch was begun, and its outcome is not known.",
        Severity.WARN,
        Verdict.IN_DOUBT,
        "Its driver was killed, hangs, or stopped without an answer. Each sink holds all of the epoch or nothing (a"
        " sink that takes rows one by one may hold a part: A167). Without a fence its commit may still succeed.",
        "restart the query, or settle it without Spark: onceonly recover resolve --query {pipeline}{where}",
    ),
    "A151": Rule(
        "An epoch was begun by a driver that has ended, or was fenced out since.",
        Severity.INFO,
        None,
        "It can no longer be committed (a sink that takes rows one by one may hold parts of it: A167). The next "
        "batch takes its number.",
        "nothing to do",
    ),
}

_PRUNED = {
    "A166": Rule(
        "The sink removed the markers of old epochs, as configured.",
        Severity.INFO,
        None,
        "The sink keeps the newest ones (Keep(markers=)) and a milestone: the chain continues from it, and rows before"
        " it are compared in sum.",
        "nothing to do; to keep all from now on: PostgresSink(..., keep=Keep(markers='all'))",
    ),
}

_ALLOWED = {
    "A154": Rule(
        "Rows are missing in sum.",
        Severity.ERROR,
        Verdict.GAPS,
        "The rows of single epochs cannot be counted: they replace one another, no column numbers them, or other "
        "programs removed some from a file of several epochs. In all there are too few.",
        "look at the changes to {sink}; restore it from a backup, or write the missing range again with a one-off job",
    ),
    "A155": Rule(
        "There are too many rows in sum.",
        Severity.ERROR,
        Verdict.DUPLICATES,
        "Other programs were allowed to remove rows, and one file held rows of several epochs. Only the sum can be "
        "compared, and it is too large.",
        "look at the changes to {sink}; delete the rows that were not written by this pipeline",
    ),
    "A164": Rule(
        "Another program made a change to the target that you tolerate.",
        Severity.INFO,
        None,
        "external_changes= of the sink permits it. Rows that were removed this way are counted as removed.",
        "nothing to do, if you intended it; else give the sink a lower external_changes=",
    ),
}

_OUTPUTS = {
    "A160": Rule(
        "The side outputs of an epoch do not add up.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Each valid row is in a side output, or is counted as left out. By the marker's own numbers some are "
        "neither, or are counted twice. Its writer counted wrongly, or was another program.",
        "compare the sinks of that side output with the source: onceonly epochs show {epoch} --query "
        "{pipeline}{where}; and report it, as such an epoch is refused before it is written (E510)",
    ),
    "A163": Rule(
        "Rows were quarantined.",
        Severity.INFO,
        None,
        "They broke an expectation or a rule of a destination, and are in this sink alone. They are counted like "
        "any rows: a missing one is A121, one too many A122.",
        "see their reasons: onceonly quarantine show --query {pipeline}{where}",
    ),
}

_DECIDED = {
    "A195": Rule(
        "A sink left the pipeline with rows that no other sink holds, and no operator gave them up.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Invalid rows, a table of a route, late rows and ids are in one sink alone. That sink had not confirmed "
        "these epochs when it was taken out, or no decision of an operator took it out.",
        "look for the rows in that sink; write missing ones by a one-off job. See the input of the epoch: onceonly "
        "epochs show {epoch} --query {pipeline}{where}",
    ),
    "A197": Rule(
        "An epoch belongs to no batch and to no decision.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "An operator's epoch records the decision, and a replacement records its backfill. This one records "
        "neither, so it is not known which rows were given up, written again or skipped.",
        "see the epoch: onceonly epochs show {epoch} --query {pipeline}{where}; have every driver and command run one "
        "version",
    ),
}

_TIME = {
    "A168": Rule(
        "Time went back.",
        Severity.ERROR,
        None,
        "The dataset is now complete until an earlier time than before, without a recorded reset. Readers of the "
        "later time may have read too little. The rows are not concerned.",
        "see the time of each epoch: onceonly time show --history --query {pipeline}{where}; and report it, as a "
        "pipeline does not write such an epoch",
    ),
    "A169": Rule(
        "A dataset is complete until a later time than any of its writers recorded.",
        Severity.ERROR,
        None,
        "No writer recorded that time. Rows before it may still come, and need not be late.",
        "see the time of each writer: onceonly time show --query {pipeline}{where}; wait for the lowest of them, "
        "and report it, as a pipeline does not write such an epoch",
    ),
    "A170": Rule(
        "A writer of the dataset is no longer observed.",
        Severity.ERROR,
        None,
        "Readers wait for each known writer until it is recorded as idle, or retired. Completeness since then does "
        "not wait for this one.",
        "name every writer in Writers(..., writers=...), so that the next epoch observes it again; see the writers "
        "that this epoch observes: onceonly time show --query {pipeline}{where}",
    ),
    "A171": Rule(
        "An epoch records no time, and the one before it did.",
        Severity.ERROR,
        None,
        "An epoch repeats the recorded time even if event_time= was removed, so another version, or another "
        "program, wrote this one. Later epochs do not know the earlier time.",
        "let every driver of the pipeline run one version; see the time of each epoch: onceonly time show --history"
        " --query {pipeline}{where}",
    ),
    "A172": Rule(
        "Rows came late.",
        Severity.INFO,
        None,
        "They were written like all others, after everything before them was recorded as complete. Earlier readers "
        "have not read them.",
        "see them: onceonly time show --history --query {pipeline}{where}; for fewer of them: a greater max_delay=",
    ),
    "A173": Rule(
        "The times of an epoch's rows differ from the time that it records.",
        Severity.ERROR,
        None,
        "A time in them was changed since, or they were counted wrongly. The number of late rows, and the time "
        "until which the dataset is complete, may be wrong as well.",
        "see the record of the epoch: onceonly epochs show {epoch} --query {pipeline}{where}; compare its rows in "
        "{sink} with the source, or restore {sink} from a backup",
    ),
    "A174": Rule(
        "The times of rows cannot be counted again: CANNOT TELL for them.",
        Severity.INFO,
        None,
        "The sink does not know the epoch of these rows, or their time column has another type there. The recorded "
        "times may be right, but the rows do not prove them.",
        "nothing to do; an epoch column in the sink helps, and a time column that keeps its type",
    ),
}

_PANES = {
    "A175": Rule(
        "The windows of an epoch do not follow from the epoch before.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Another version, or another program, wrote this one. Results since may have missed rows, or have them twice.",
        "see it: onceonly epochs show {epoch} --query {pipeline}{where}; let every driver of the pipeline run one "
        "version; if results are wrong, give the query its own name, checkpoint and table",
    ),
    "A176": Rule(
        "The state of open windows differs from the newest epoch.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Another program wrote into the table of state. Results of these windows will miss rows, or have some "
        "twice. The query stops when it notices (E226).",
        "compute it again from the source: onceonly recover rebuild-windows --query {pipeline}{where} --with "
        "MODULE:FUNCTION --windows MODULE:NAME; or restore {sink} from a backup; or give up the open windows: "
        "onceonly recover reset-windows --query {pipeline}{where} --accept-loss",
    ),
    "A177": Rule(
        "The results of a window differ from those that were written.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "By the rows, or by the state of an open window, one of its results is missing, is there twice, or was "
        "changed. Readers who add its rows up, or take the newest, get a wrong result.",
        "look at its rows in {sink}, and at the input of the epoch: onceonly epochs show {epoch} --query "
        "{pipeline}{where}; correct them by hand, or restore {sink} from a backup",
    ),
    "A178": Rule(
        "State or results of windows cannot be read: CANNOT TELL for them.",
        Severity.INFO,
        None,
        "The chain of epochs, and how many rows each brought, are checked. The current result of each window is not "
        "proven.",
        "nothing to do if the sink keeps no epoch with its rows, or shows no state; a column of epochs in {sink} helps:"
        " PostgresSink(..., tuning=PostgresTuning(epoch_column='_epoch'))",
    ),
}

_GONE = {
    "A191": Rule(
        "Files that hold rows are gone.",
        Severity.ERROR,
        Verdict.GAPS,
        "The target still lists them. Readers fail, or read fewer rows than were committed.",
        "put the files back from a backup of {sink}, or restore it to a version whose files are there; VACUUM removes "
        "those of older versions (delta.deletedFileRetentionDuration)",
    ),
    "A190": Rule(
        "The deduplication store has lost ids.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "A row that is sent again is written again. Newer rows may be there twice, each as one of its epoch.",
        "stop every driver; restore {sink} from a backup that holds all of epoch {epoch}; compare rows of later "
        "epochs with the source",
    ),
}

_REWOUND = {
    "A181": Rule(
        "A rewind took epochs back, and Spark read their rows again.",
        Severity.INFO,
        None,
        "Every sink had been restored to an earlier epoch, and an operator rewound the pipeline. Readers saw rows "
        "of these numbers twice, before and after. Other rows come from a plan that is not deterministic, or a "
        "changed source.",
        "nothing to do; see when and why: onceonly status {pipeline}{ledger}",
    ),
    "A196": Rule(
        "A rewind took rows back that Spark does not read again.",
        Severity.WARN,
        None,
        "A backfill or a full refresh had replaced all other rows. A rewind has undone that, and the old rows are "
        "current again, once, with their old values.",
        "publish the backfill again, or refresh once more; see its name and its target: onceonly status{ledger}",
    ),
}

_CODE = {
    "A183": Rule(
        "More than one code wrote these epochs.",
        Severity.INFO,
        None,
        "Each epoch records the given version and a fingerprint of the plan. Fingerprints of two minor versions of "
        "Spark or Python always differ.",
        "nothing to do; compare the newest plan: onceonly epochs show --plan --query {pipeline}{ledger}",
    ),
}

_ENGINE = {
    "A180": Rule(
        "Spark finished batches that are no epochs.",
        Severity.ERROR,
        Verdict.GAPS,
        "A callback returned before it called exactly_once(), or the sink was restored together with its ledger: "
        "the input of these batches is in no epoch.",
        "stop every driver; then, if the source still holds the rows, this loses nothing: {rewind}",
    ),
}

_RECOMPUTED = {
    "A185": Rule(
        "Rows computed again from the source are not those on record: DIFFERS.",
        Severity.ERROR,
        None,
        "The given query is not the one that wrote them, its source was changed, or the rows on record were "
        "computed wrongly. The verdict is about sinks and record, and is not changed.",
        "see the epoch: onceonly epochs show {epoch} --query {pipeline}{where}; compute it again with the code that "
        "wrote it, under its time zone and ANSI mode",
    ),
    "A186": Rule(
        "Epochs could not be computed again: CANNOT.",
        Severity.WARN,
        None,
        "It is not known which rows the query would give for them. The verdict is about sinks and record, and is "
        "not changed.",
        "see the recorded epochs: onceonly epochs list --query {pipeline}{where}; leave these out of the range",
    ),
    "A187": Rule(
        "Rows computed again from the source are those on record: RECOMPUTED EQUAL.",
        Severity.INFO,
        None,
        "The query gives for the recorded offset ranges the rows that its epochs recorded: batch equals stream.",
        "nothing to do",
    ),
}

RULES: dict[str, Rule] = {
    **_READING,
    **_HISTORY,
    **_ROWS,
    **_LEDGER,
    **_PIPELINE,
    **_OUTPUTS,
    **_DECIDED,
    **_TIME,
    **_PANES,
    **_ALLOWED,
    **_GONE,
    **_PRUNED,
    **_ENGINE,
    **_REWOUND,
    **_CODE,
    **_RECOMPUTED,
}
"""Every audit code, in the order in which the rules look."""
