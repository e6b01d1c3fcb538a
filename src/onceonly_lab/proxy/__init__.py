"""Wire proxies that understand what passes, for faults at exactly one message: a lost commit, a lost answer."""

from onceonly_lab.proxy.kafka import Api, KafkaProxy, KafkaRequest
from onceonly_lab.proxy.postgres import PostgresProxy, Statement
from onceonly_lab.proxy.rules import Act, Rule

__all__ = ["Act", "Api", "KafkaProxy", "KafkaRequest", "PostgresProxy", "Rule", "Statement"]
