"""Write exactly once into Kafka topics.

``KafkaSink`` writes, ``with_kafka`` gives a Spark session the Kafka source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_checkpoints import on_demand

if TYPE_CHECKING:
    from onceonly_sinks.kafka.options import KafkaTuning
    from onceonly_sinks.kafka.read import consumer_options, read_committed, reader_options, with_kafka
    from onceonly_sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink", "KafkaTuning", "consumer_options", "read_committed", "reader_options", "with_kafka"]
__dir__ = [*__all__, "__version__"].copy
__getattr__ = on_demand(__name__, {**dict.fromkeys(__all__, "read"), "KafkaSink": "sink", "KafkaTuning": "options"})
