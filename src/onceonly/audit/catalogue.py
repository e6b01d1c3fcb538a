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


CLEAN, FINDINGS, UNANSWERED, UNCOUNTED = 0, 1, 2, 3
"""Exit codes: every row was counted and is right, something to do, could not answer, rows were not counted."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The texts of one code.

    Attributes:
        severity: ``info`` findings change the exit code only with ``--fail-on info``.
        verdict: that the finding causes, or ``None`` for no effect.
        remedy: the next step, with details in braces, see ``Finding.advised``.
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
        "Nothing can be said about its rows.",
        "bring it back, check it with: onceonly doctor --sink {address}; then audit again (an address holds no "
        "password: it comes from PGPASSWORD, ~/.pgpass or the file of PGSERVICEFILE)",
    ),
    "A102": Rule(
        "No sink holds a marker of this pipeline.",
        Severity.ERROR,
        Verdict.CANNOT_TELL,
        "There is nothing to audit: the name or the addresses are wrong, or nothing was ever written.",
        "see the names known here: onceonly queries list; name the sinks with --sink KIND:TARGET",
    ),
    "A103": Rule(
        "The sink no longer remembers its first epochs; the ledger does.",
        Severity.INFO,
        None,
        "Its records hash into the oldest marker, so slices and digests are proven; rows where counted.",
        "nothing to do; a longer log retention keeps more of the history in the sink",
    ),
    "A104": Rule(
        "The sink no longer remembers its first epochs, and nothing else proves them.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "What those epochs held cannot be checked any more. Later epochs are checked.",
        "restore the ledger from a backup, if there is one, and audit again",
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
        "The sinks are judged by their markers alone. Without it, a sink that was set back cannot be seen.",
        "make it readable, or fill a new one: onceonly ledger rebuild --query {pipeline} --sink {address}{ledger}",
    ),
    "A107": Rule(
        "A sink of the pipeline was not audited.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "The newest marker in the other sinks lists this sink; nothing can be said about its rows.",
        "name it too: --sink KIND:TARGET",
    ),
    "A108": Rule(
        "There is no epoch to judge: all come before the first that was asked for.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "Nothing was compared.",
        "give a lower --since; see the epochs: onceonly epochs list --query {pipeline}{where}",
    ),
    "A109": Rule(
        "What rows of epochs say cannot be compared: CANNOT TELL for their content.",
        Severity.INFO,
        Verdict.CANNOT_TELL,
        "Their number may be right and a value in them not.",
        "nothing to do, unless another finding names a change of the target; an epoch column in the sink helps",
    ),
}

_HISTORY = {
    "A110": Rule(
        "A marker is not the hash of what it says.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "The marker was changed after it was written, or by something else.",
        "find out who wrote to the marker tables or the table's log of {sink}; restore them from a backup",
    ),
    "A111": Rule(
        "The marker of an epoch is missing between two others.",
        Severity.ERROR,
        Verdict.GAPS,
        "Epochs are dense: the sink has lost what it knew about one.",
        "restore the markers of {sink} from a backup; see what the ledger knows: onceonly epochs show "
        "{epoch} --query {pipeline}",
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
        "What lies between was never written.",
        "see the range with: onceonly epochs show {epoch} --query {pipeline}{where}; write it with a "
        "one-off job, "
        "or take it as lost",
    ),
    "A114": Rule(
        "An epoch starts before the end of the one before it.",
        Severity.ERROR,
        Verdict.DUPLICATES,
        "What lies between was written twice.",
        "see the range with: onceonly epochs show {epoch} --query {pipeline}{where}; delete the rows of one "
        "of the two epochs",
    ),
    "A115": Rule(
        "An epoch does not start where the one before it ended, and the offsets cannot be ordered.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Rows are missing or doubled between the two.",
        "compare both with: onceonly epochs show {epoch} --query {pipeline}{where}",
    ),
    "A116": Rule(
        "An operator moved the pipeline's position.",
        Severity.INFO,
        None,
        "The range was given up, or written again, on purpose. The guarantee holds before and after it.",
        "nothing to do",
    ),
    "A198": Rule(
        "Whether rows of epochs were written again is not known.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "An operator let the query go on where nobody could see whether its batch repeats these epochs: their files "
        "were on no list any more, or the source has none. If it did, their rows stand twice.",
        "compare the rows of {sink} with the source, above all those of the epoch behind the decision: onceonly epochs "
        "list --query {pipeline}{where}",
    ),
    "A117": Rule(
        "One epoch was committed more than once in a sink.",
        Severity.ERROR,
        Verdict.DUPLICATES,
        "Its rows stand there more than once.",
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
        "Markers, chain and slices prove that each epoch was committed once and none is missing; whether its rows "
        "still stand is not known. An audit ends with 3 for it, with --uncounted-ok with 0.",
        "compare the rows of {sink} with the source where that matters; a sink that only adds rows is counted where a "
        "bigint column _epoch (epoch_column=) is in it",
    ),
    "A167": Rule(
        "Rows are put one by one in this sink: CANNOT TELL for rows.",
        Severity.INFO,
        Verdict.CANNOT_TELL,
        "Markers, chain and slices are checked: a marker was put once all rows of its epoch were acknowledged. Of an "
        "epoch that was cut off parts stand until its replay, and an older driver or a late request may have put rows.",
        "nothing to do; compare the rows of {sink} with the source where that matters",
    ),
    "A120": Rule(
        "Rows cannot be told apart by epoch after what others did: CANNOT TELL for rows.",
        Severity.WARN,
        Verdict.CANNOT_TELL,
        "Markers, chain and slices are checked; whether the rows of each epoch still stand cannot be counted.",
        "look at what others did to {sink}; with Spark, the rows can be hashed instead: onceonly audit --deep "
        "--query {pipeline}{where}",
    ),
    "A121": Rule(
        "Rows of an epoch are missing.",
        Severity.ERROR,
        Verdict.GAPS,
        "The marker vouches for more rows than the sink holds.",
        "{undo}see what the epoch read: onceonly epochs show {epoch} --query {pipeline}{where}; restore {sink} from a "
        "backup, or, the source still holding the rows, compute them again into a table beside it: onceonly epochs "
        "rerun {epoch}..{epoch} --query {pipeline}{ledger} --into KIND:TARGET --with MODULE:FUNCTION",
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
        "What was computed is not what the sink took.",
        "compare the rows of epoch {epoch} in {sink} with the source",
    ),
    "A125": Rule(
        "Rows differ in an epoch before a loss or change that an operator accepted.",
        Severity.INFO,
        None,
        "An operator accepted what stood in the sink; the guarantee holds from that adoption on.",
        "nothing to do, if the numbers are those that were accepted",
    ),
    "A126": Rule(
        "Somebody else restored or replaced the target, or changed rows in it.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Rows of committed epochs may be gone or doubled, although their markers stand. The query stops at "
        "its next start.",
        "{undo}check the rows; if they are not as wanted, undo it or restore {sink} from a backup; if they are: "
        "{accepts}",
    ),
    "A127": Rule(
        "Something happened to the target that leaves its epochs alone.",
        Severity.INFO,
        None,
        "A failover, or maintenance; the rows of all epochs stand.",
        "nothing to do",
    ),
    "A128": Rule(
        "The target also holds rows that no epoch of this pipeline brought.",
        Severity.INFO,
        None,
        "They were there before, or somebody else writes there too; the verdict does not cover them.",
        "nothing to do, if others are meant to write there; two pipelines that read the same stream double its rows",
    ),
    "A129": Rule(
        "Rows of an epoch are not those that were committed.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "A value in them was changed since, or a row was taken away and another one put in.",
        "see what the epoch read: onceonly epochs show {epoch} --query {pipeline}{where}; compare its rows in {sink} "
        "with the source, or restore {sink} from a backup",
    ),
}

_LEDGER = {
    "A130": Rule(
        "The ledger does not know every epoch of the sink.",
        Severity.INFO,
        None,
        "Rows are not touched by this: the ledger is an index.",
        "onceonly ledger rebuild --query {pipeline} --sink {address}{ledger}",
    ),
    "A131": Rule(
        "There is no ledger of this pipeline.",
        Severity.INFO,
        None,
        "The sinks are judged by their markers alone. Without it, a sink that was set back cannot be seen.",
        "onceonly ledger rebuild --query {pipeline} --sink {address}{ledger}",
    ),
    "A132": Rule(
        "The ledger confirms epochs that the sink no longer holds.",
        Severity.ERROR,
        Verdict.GAPS,
        "The sink was set back (restored, re-created, failed over): committed rows are gone.",
        "stop every driver; {ways}",
    ),
    "A133": Rule(
        "The ledger and the sink disagree about what an epoch was.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Two histories exist under one name, or one of them was edited.",
        "point --ledger at the right ledger; the sink is the truth: onceonly ledger rebuild --query "
        "{pipeline} --sink {address}",
    ),
    "A134": Rule(
        "The sink is not the table that confirmed the epoch.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "It was dropped and created again, or another one lies behind the same name.",
        "put the old table back, or, if the rows were moved with it: {accepts}",
    ),
    "A135": Rule(
        "An epoch lies at another place in the sink than its receipt says.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "The sink's history was rewritten since.",
        "find out what was done to {sink}; compare the rows of epoch {epoch} with the source",
    ),
    "A136": Rule(
        "A record of the ledger is not the hash of what it says.",
        Severity.WARN,
        None,
        "The ledger was edited or damaged; the sinks are not affected.",
        "onceonly ledger rebuild --query {pipeline} --sink {address}{ledger}",
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
        "restart the query, or without Spark: onceonly txn resolve --query {pipeline}{where}",
    ),
    "A142": Rule(
        "A sink is several epochs behind the others.",
        Severity.ERROR,
        Verdict.GAPS,
        "It was set back, or was left out for a while.",
        "stop every driver; {ways}",
    ),
    "A143": Rule(
        "An epoch is being written.",
        Severity.INFO,
        None,
        "Its driver is at work. In each sink the epoch is there completely or not at all.",
        "nothing to do",
    ),
    "A150": Rule(
        "An epoch was begun, and nobody knows what became of it.",
        Severity.WARN,
        Verdict.IN_DOUBT,
        "Its driver was killed, stands still, or stopped without an answer. The epoch is there completely or not at "
        "all (where rows are put one by one, in part: A167); without a fence it may still land.",
        "restart the query, or settle it without Spark: onceonly txn resolve --query {pipeline}{where}",
    ),
    "A151": Rule(
        "An epoch was begun by a driver that has ended, or was fenced out since.",
        Severity.INFO,
        None,
        "It can no longer land (where rows are put one by one, parts of it stand: A167); the next batch takes its "
        "number.",
        "nothing to do",
    ),
}

_PRUNED = {
    "A166": Rule(
        "Markers of old epochs were removed by the sink, as it was told to.",
        Severity.INFO,
        None,
        "The sink keeps the newest ones (markers=) and a milestone: the chain goes on from it, rows below it are "
        "compared in sum.",
        "nothing to do; to keep all from now on: PostgresSink(..., markers=None)",
    ),
}

_ALLOWED = {
    "A154": Rule(
        "Rows are missing in sum.",
        Severity.ERROR,
        Verdict.GAPS,
        "The target does not tell which rows are whose: they replace one another, no column numbers them, or others "
        "took some out of a file of several epochs. In all there are too few.",
        "see what was done to {sink}; restore it from a backup, or write the missing range again with a one-off job",
    ),
    "A155": Rule(
        "There are too many rows in sum.",
        Severity.ERROR,
        Verdict.DUPLICATES,
        "Others were allowed to remove rows, and rows of several epochs lay in one file: only the sum can be compared, "
        "and it is too large.",
        "see what was done to {sink}; delete the rows that were not written by this pipeline",
    ),
    "A164": Rule(
        "Somebody else changed the target, which they may.",
        Severity.INFO,
        None,
        "The sink was given leave for it by foreign=. Rows that were removed so are counted as removed.",
        "nothing to do, if that was meant; else give the sink a lower foreign=",
    ),
}

_OUTPUTS = {
    "A160": Rule(
        "The outputs of an epoch do not add up.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Each good row is in an output or is counted as one that it does not want. By the marker's own numbers some "
        "are neither, or are counted twice: whoever wrote it counted wrongly, or it was made by something else.",
        "compare the sinks of that output with the source: onceonly epochs show {epoch} --query {pipeline}{where}; and "
        "report it, as such an epoch is refused before it is written (E510)",
    ),
    "A163": Rule(
        "Rows were set aside.",
        Severity.INFO,
        None,
        "They broke an expectation or a rule of a destination, and are in this sink alone. That each of them stands "
        "there is counted like any sink's rows: one that is missing is A121, one too many A122.",
        "see what they broke: onceonly quarantine show --query {pipeline}{where}",
    ),
}

_DECIDED = {
    "A195": Rule(
        "A sink left the pipeline with rows that no other sink holds, and nobody gave them up.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Bad rows, a table of a route, late rows and ids are in one sink alone. That sink had not confirmed these "
        "epochs when it was taken out, or no decision of an operator took it out.",
        "look for the rows in that sink; where they are missing, write them by a one-off job. What the epoch read: "
        "onceonly epochs show {epoch} --query {pipeline}{where}",
    ),
    "A197": Rule(
        "An epoch is of no batch, and of nobody's decision.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "An operator's epoch says what was decided, and a publication which rerun it is. This one says neither, so "
        "nobody knows which rows were given up, written again or passed over.",
        "see the epoch: onceonly epochs show {epoch} --query {pipeline}{where}; have every driver and command run one "
        "version",
    ),
}

_TIME = {
    "A168": Rule(
        "Time went back.",
        Severity.ERROR,
        None,
        "What was called complete is called complete no more, and no turn that would say why. Whoever relied on the "
        "greater number may have read too little. Of the rows this says nothing.",
        "see what each epoch said: onceonly time history --query {pipeline}{where}; and report it, as a pipeline does "
        "not write such an epoch",
    ),
    "A169": Rule(
        "A dataset is called complete through more than any of its writers noted.",
        Severity.ERROR,
        None,
        "Nobody gave the word that readers are told. Rows before it may still be to come, and need not be late.",
        "see what each writer noted: onceonly time show --query {pipeline}{where}; wait for the least of that, and "
        "report it, as a pipeline does not write such an epoch",
    ),
    "A170": Rule(
        "A writer of the dataset is observed no more.",
        Severity.ERROR,
        None,
        "A writer that was seen once is waited for until it is on record as silent, or retired. What is called "
        "complete since does not wait for this one.",
        "name every writer in Dataset(..., writers=...), so that the next epoch observes it again; see whom that epoch "
        "observes: onceonly time show --query {pipeline}{where}",
    ),
    "A171": Rule(
        "An epoch says nothing of time, and the one before it did.",
        Severity.ERROR,
        None,
        "Also where nobody notes time any more an epoch repeats what was said, so another version, or another program, "
        "wrote this one. What comes after it knows nothing of the time before.",
        "have every driver of the pipeline run one version; see what each epoch said: onceonly time history --query "
        "{pipeline}{where}",
    ),
    "A172": Rule(
        "Rows came behind the horizon.",
        Severity.INFO,
        None,
        "They were written like all others, after it was noted that all before them was there. Whoever read then, has "
        "not read them.",
        "see them: onceonly time certify --rows --query {pipeline}{where}; so that fewer are late: a greater delay=",
    ),
    "A173": Rule(
        "What the rows of an epoch say of time is not what the epoch says.",
        Severity.ERROR,
        None,
        "A time in them was changed since, or they were counted wrongly: which of them were late, and up to when the "
        "dataset is complete, may be wrong with it.",
        "see what the epoch said: onceonly epochs show {epoch} --query {pipeline}{where}; compare its rows in {sink} "
        "with the source, or restore {sink} from a backup",
    ),
    "A174": Rule(
        "What rows say of time cannot be counted again: CANNOT TELL for it.",
        Severity.INFO,
        None,
        "The sink does not tell these rows by their epoch, or their column of time has another type there. What their "
        "epochs say of time may be right, and is not proven by them.",
        "nothing to do; an epoch column in the sink helps, and a column of time that keeps its type",
    ),
}

_PANES = {
    "A175": Rule(
        "The windows of an epoch are not what the epoch before allows.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Another version, or another program, wrote this one. Results since may have missed rows, or have them twice.",
        "see it: onceonly epochs show {epoch} --query {pipeline}{where}; have every driver of the pipeline run one "
        "version; where results are wrong, give the query a name, a checkpoint and a table of its own",
    ),
    "A176": Rule(
        "The state of open windows is not what the newest epoch left.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "Somebody else wrote into the table of state. Results of these windows will miss rows, or have some twice; the "
        "query stops where it notices (E226).",
        "compute it again from the source: onceonly panes rebuild --query {pipeline}{where} --with MODULE:FUNCTION "
        "--panes MODULE:NAME; or restore {sink} from a backup; or give up what is open: "
        "onceonly panes reset --query {pipeline}{where} --accept-loss",
    ),
    "A177": Rule(
        "The results of a window are not what it wrote.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "By the rows alone, or by the state of the window where it is open, one of its results is missing, stands "
        "twice, or was changed. Whoever adds its rows up, or takes the newest, gets something else than was computed.",
        "look at its rows in {sink}, and what the epoch read: onceonly epochs show {epoch} --query {pipeline}{where}; "
        "put them right by hand, or restore {sink} from a backup",
    ),
    "A178": Rule(
        "State or results of windows cannot be read: CANNOT TELL for them.",
        Severity.INFO,
        None,
        "That epochs go on in one another, and how many rows each brought, is checked. What of each window stands is "
        "not proven.",
        "nothing to do, where the sink tells no rows by their epoch, or shows no state; a column of epochs in {sink} "
        "helps: PostgresSink(..., epoch_column=)",
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
        "Ids of rows that were let through are known no more.",
        Severity.ERROR,
        Verdict.IN_DOUBT,
        "A row that is sent again is written again. Rows that came since may stand twice, each as one of its epoch.",
        "stop every driver; restore {sink} from a backup that holds epoch {epoch} whole; compare rows of later epochs "
        "with the source",
    ),
}

_REWOUND = {
    "A181": Rule(
        "Epochs were set aside, and their rows read from the source again.",
        Severity.INFO,
        None,
        "Every sink had been set back behind them, and somebody cut the pipeline back. Readers saw rows of these "
        "numbers twice, before and after. Other rows come from a plan that is not deterministic, or a changed source.",
        "nothing to do; see when and why: onceonly queries show {pipeline}{ledger}",
    ),
    "A196": Rule(
        "Rows were set aside that Spark does not read again.",
        Severity.WARN,
        None,
        "A publication and a full refresh put rows in the place of all others. A rewind has set that aside, and what "
        "stood before stands again, once, with its old values.",
        "publish the rerun again, or refresh anew; which rerun it was, and where its rows are: "
        "onceonly queries list{ledger}",
    ),
}

_CODE = {
    "A183": Rule(
        "More than one code wrote these epochs.",
        Severity.INFO,
        None,
        "Each epoch notes the version that was said and a fingerprint of the plan. Those of two minor versions of "
        "Spark or Python differ whatever the code is.",
        "nothing to do; see what the newest plan changes: onceonly epochs plans --query {pipeline}{ledger}",
    ),
}

_ENGINE = {
    "A180": Rule(
        "Spark finished batches that are no epochs.",
        Severity.ERROR,
        Verdict.GAPS,
        "A callback returned before it called exactly_once(), or the sink was restored together with its ledger: what "
        "these batches read is in no epoch.",
        "stop every driver; then, the source still holding the rows, nothing is lost by: {rewind}",
    ),
}

_RECOMPUTED = {
    "A185": Rule(
        "Rows computed again from the source are not those on record: DIFFERS.",
        Severity.ERROR,
        None,
        "The query that was given is not the one that wrote them, its source was changed, or the rows on record were "
        "computed wrongly. The verdict is about sinks and record, and stands.",
        "see the epoch: onceonly epochs show {epoch} --query {pipeline}{where}; compute it again with the code that "
        "wrote it, under its time zone and ANSI mode",
    ),
    "A186": Rule(
        "Epochs could not be computed again: CANNOT.",
        Severity.WARN,
        None,
        "Nothing is said about what the query would give for them. The verdict is about sinks and record, and stands.",
        "see what is on record: onceonly epochs list --query {pipeline}{where}; leave these out of --recompute",
    ),
    "A187": Rule(
        "Rows computed again from the source are those on record: RECOMPUTED EQUAL.",
        Severity.INFO,
        None,
        "The query gives for the recorded slices the rows that its epochs recorded: batch equals stream.",
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
