"""Write exactly once into Kafka topics.

``KafkaSink`` writes, ``with_kafka`` gives a Spark session the Kafka source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_checkpoints import absent

if TYPE_CHECKING:
    from onceonly_sinks.kafka.options import KafkaTuning
    from onceonly_sinks.kafka.read import consumer_options, read_committed, reader_options, with_kafka
    from onceonly_sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink", "KafkaTuning", "consumer_options", "read_committed", "reader_options", "with_kafka"]
__dir__ = [*__all__, "__version__"].copy


def __getattr__(name: str) -> object:
    # Executors unpickle functions of this package; they must not pay for what only the driver needs.
    if name == "KafkaSink":
        from onceonly_sinks.kafka.sink import KafkaSink

        return KafkaSink
    if name == "KafkaTuning":
        from onceonly_sinks.kafka.options import KafkaTuning

        return KafkaTuning
    if name in __all__:
        from onceonly_sinks.kafka import read

        return getattr(read, name)
    return absent(__name__, name)
