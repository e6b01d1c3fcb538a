"""What a user's type checker infers, and the lines in which it must find a mistake: those that end with ``# wrong``."""

import pandas as pd
from typing_extensions import assert_type

import onceonly
from onceonly import EventTime, ExactlyOnce, Quality, Recovery, Storage, datasets, exactly_once
from onceonly.errors import OnceOnlyError, Refused, refusal
from onceonly.reading import Dataset, ReadPoint, history, read_point
from onceonly.replay import recompute
from onceonly.windows import Sum, Tumbling, Windows
from onceonly_sinks.delta import DeltaSink, DeltaTuning
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning

delta = DeltaSink("shop/orders", key="id", schema="add_columns")
postgres = PostgresSink("postgresql://h/shop", "orders", keep=Keep(history="all"), tuning=PostgresTuning(load="driver"))
write = exactly_once(delta, postgres, name="orders", storage=Storage(ledger="ledger.db"))
assert_type(delta, DeltaSink)
assert_type(postgres, PostgresSink)
assert_type(write, ExactlyOnce)
assert_type(history("ledger.db"), pd.DataFrame)
assert_type(datasets("ledger.db"), tuple[Dataset, ...])
assert_type(read_point("orders", ledger="ledger.db"), ReadPoint)
assert_type(read_point("orders", ledger="ledger.db")["delta:orders"].rows, int)
found = refusal(ValueError())
assert_type(found, Refused | None)
if found:
    assert_type(found.retry, bool)
    assert_type(found.error, OnceOnlyError | None)
assert_type(onceonly.__version__, str)

DeltaSink("t", keys="id")  # wrong
DeltaSink("t", schema="add_column")  # wrong
DeltaSink("t", external_changes="everything")  # wrong
DeltaSink("t", tuning=DeltaTuning(committer="sparks"))  # wrong
PostgresSink("postgresql://h/shop", "orders", tuning=PostgresTuning(triggers="ignore"))  # wrong
PostgresSink("postgresql://h/shop", "orders", keep=Keep(history="everything"))  # wrong
KafkaSink("h:9092", topic=7)  # wrong
Recovery(overlap="skip")  # wrong
Recovery(lossy_source="rate")  # wrong
EventTime("at", unit="s")  # wrong
Windows(key="a", aggregates={"s": Sum("a")}, time="at", window=Tumbling("1 minute"), accumulation="retract")  # wrong
exactly_once(MemorySink(), recover=Recovery())  # wrong
Quality(max_bads=1)  # wrong
read_point("orders", "newest", ledger="ledger.db")  # wrong
recompute("orders", job=print, ledger="ledger.db", spark=None, state="copy")  # wrong
