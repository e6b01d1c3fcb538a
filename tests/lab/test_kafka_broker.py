"""The embedded broker starts, crashes and comes back whole; it never outlives who started it and leaves nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.kafka_client import committed, ends, producer, send, visible

from onceonly_lab.servers.brokerprocess import Ports, broker_properties, controller_properties
from onceonly_lab.servers.brokerready import given_up
from onceonly_lab.servers.kafka import EmbeddedKafka, KafkaDidNotStart, sweep_leftovers
from onceonly_lab.servers.kafkaproxy import Api, KafkaProxy
from onceonly_lab.servers.ports import free_ports, is_free
from onceonly_lab.servers.proxy import Act

PARENT = """
import sys, time
from onceonly_lab.servers.kafka import temporary_kafka
with temporary_kafka() as broker:
    print(broker.data_dir, flush=True)
    time.sleep(600)
"""

PORTS = Ports(1001, 1002, 1003, 1004)
ACTIVE = "INFO Becoming the active controller at epoch 2, next write offset 31.\n"


def registration(fenced: str) -> str:
    return f"INFO Replayed BrokerRegistrationChangeRecord modifying the registration for broker 1: X(fenced={fenced})\n"


@pytest.fixture
def broker(kafka: EmbeddedKafka) -> EmbeddedKafka:
    kafka.start()
    return kafka


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# ---- life


def test_a_topic_is_made_once_with_its_settings_and_stays(broker: EmbeddedKafka) -> None:
    assert broker.topic("made", partitions=3, config={"cleanup.policy": "compact"}) == "made"
    assert broker.topic("made") == "made"
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 0})
    assert len(admin.list_topics("made", timeout=5).topics["made"].partitions) == 3
    asked = ConfigResource(ConfigResource.Type.TOPIC, "made")
    assert admin.describe_configs([asked])[asked].result(5)["cleanup.policy"].value == "compact"


def test_what_a_transaction_writes_is_visible_once_it_is_committed(broker: EmbeddedKafka) -> None:
    topic = broker.topic("life")
    writer = producer(broker.servers, topic)
    send(writer, topic, "a")
    assert ends(broker.servers, topic) == (0, 1)
    writer.commit_transaction(10)
    assert committed(broker.servers, topic) == ["a"]


def test_a_topic_that_kafka_refuses_is_an_error_with_kafkas_code(broker: EmbeddedKafka) -> None:
    with pytest.raises(ValueError, match="error code 37"):
        broker.topic("none", partitions=0)


def test_what_was_committed_survives_a_kill_on_the_same_ports_and_what_was_open_can_still_be_committed(
    broker: EmbeddedKafka,
) -> None:
    topic, servers = broker.topic("survives"), broker.servers
    writer = producer(servers, "survives")
    send(writer, topic, "a")
    writer.commit_transaction(10)
    send(writer, topic, "b")
    broker.start()  # it runs: nothing happens
    broker.kill()
    broker.kill()
    assert not broker.running
    broker.start()
    assert broker.servers == servers
    assert visible(servers, topic) == ["a"]
    writer.commit_transaction(20)
    assert committed(servers, topic) == ["a", "b"]


@pytest.mark.slow
def test_starting_and_stopping_may_repeat(broker: EmbeddedKafka) -> None:
    broker.start()
    broker.stop()
    broker.stop()
    broker.kill()
    assert not broker.running
    broker.start()
    assert broker.running


def test_a_paused_broker_is_silent_and_answers_again_once_resumed(broker: EmbeddedKafka) -> None:
    topic = broker.topic("paused")
    writer = producer(broker.servers, "paused", socket_timeout_ms=1000)
    send(writer, topic, "a")
    broker.pause()
    try:
        assert broker.running
        with pytest.raises(KafkaException) as silent:
            writer.commit_transaction(0.5)
        assert silent.value.args[0].retriable()
    finally:
        broker.resume()
    writer.commit_transaction(20)
    assert committed(broker.servers, topic) == ["a"]


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = EmbeddedKafka(tmp_path, {"num.io.threads": "none"})
    with pytest.raises(KafkaDidNotStart, match=r"(?s)num\.io\.threads.*"):
        broken.start()
    assert not broken.running


# ---- a committed transaction whose markers are not written yet


def commit_without_markers(broker: EmbeddedKafka, inner_wire: KafkaProxy, topic: str) -> None:
    """Commit; then the broker dies before the markers that make the commit visible have left it."""
    writer = producer(broker.servers, topic)
    markers = inner_wire.rule(Act.DROP_REQUEST, Api.WRITE_TXN_MARKERS)
    send(writer, topic, "a", "b")
    writer.commit_transaction(10)
    markers.wait(10)
    assert visible(broker.servers, topic) == []
    broker.kill()
    inner_wire.clear()


@pytest.mark.slow
def test_a_commit_without_its_markers_is_visible_after_a_restart(broker: EmbeddedKafka, inner_wire: KafkaProxy) -> None:
    topic = broker.topic("markers")
    commit_without_markers(broker, inner_wire, topic)
    broker.start()
    assert committed(broker.servers, topic) == ["a", "b"]


@pytest.mark.slow
def test_a_naive_restart_can_leave_a_commit_hidden_for_good(broker: EmbeddedKafka, inner_wire: KafkaProxy) -> None:
    for attempt in range(6):
        topic = broker.topic(f"naive-{attempt}")
        commit_without_markers(broker, inner_wire, topic)
        broker.start(settle=False)
        if ends(broker.servers, topic) == (0, 2):
            return
    pytest.fail("six restarts, and each time the markers came: the safe way is no longer needed")


@pytest.mark.parametrize(
    ("printed", "settled"),
    [
        (registration("true"), False),  # it has just been born, and what follows is not read yet
        (registration("true") + registration("-1") + ACTIVE, False),
        (registration("true") + registration("-1") + registration("0") + ACTIVE, False),
        (registration("true") + registration("-1") + ACTIVE + registration("1"), True),
        (registration("true") + registration("-1") + ACTIVE + registration("1").rstrip(), False),  # half a line
        (registration("true") + registration("-1") + registration("1") + ACTIVE, True),
        (ACTIVE, True),  # it died before it was ever registered
    ],
)
def test_the_broker_counts_as_given_up_only_when_its_last_registration_is_fenced(printed: str, settled: bool) -> None:
    assert given_up(printed) is settled


# ---- leftovers


def test_a_broker_does_not_outlive_a_killed_parent_and_its_directory_is_swept() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        data_dir = Path(parent.stdout.readline().strip())
        server = psutil.Process(int((data_dir / "server.pid").read_text()))
        assert sweep_leftovers() == []  # it belongs to somebody alive
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while not gone(server):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert data_dir.parent in sweep_leftovers()
    assert not data_dir.parent.exists()


def test_a_server_that_survived_its_watchdog_is_ended_before_its_data_is_used_again(tmp_path: Path) -> None:
    mark = tmp_path / "server.properties"
    program = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program, str(mark)], stdout=subprocess.PIPE) as leftover:
        try:
            assert leftover.stdout
            leftover.stdout.readline()  # a process that is not yet past its exec has no arguments to be known by
            (tmp_path / "server.pid").write_text(str(leftover.pid))
            with pytest.raises(KafkaDidNotStart):
                EmbeddedKafka(tmp_path, {"num.io.threads": "none"}).start()
            assert leftover.poll() is not None
        finally:
            leftover.kill()


def test_a_foreign_process_that_has_the_pid_by_now_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        folder = Path(tempfile.mkdtemp(prefix="onceonly-kafka-", dir=tmp_path))
        (folder / "node").mkdir()
        (folder / "owner.lock").touch()
        (folder / "node" / "server.pid").write_text(str(other.pid))
        assert sweep_leftovers(tmp_path) == [folder]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


# ---- how it is set up


def test_settings_of_the_caller_win(tmp_path: Path) -> None:
    lines = broker_properties(PORTS, tmp_path, {"num.partitions": "7", "log.roll.ms": "1"}).splitlines()
    assert "num.partitions=7" in lines
    assert "log.roll.ms=1" in lines
    assert not [line for line in lines if line == "num.partitions=1"]


def test_the_proxied_listener_is_there_only_with_a_proxy_and_never_replaces_the_direct_one(tmp_path: Path) -> None:
    assert "PROXIED://" not in broker_properties(PORTS, tmp_path, {})
    behind = Ports(1001, 1002, 1003, 1004, client_proxy=2001, internal_proxy=2002)
    lines = broker_properties(behind, tmp_path, {}).splitlines()
    assert "advertised.listeners=CLIENT://127.0.0.1:1001,INTERNAL://127.0.0.1:2002,PROXIED://127.0.0.1:2001" in lines
    assert any(line.startswith("listeners=") and "PROXIED://127.0.0.1:1004" in line for line in lines)


def test_the_controller_alone_opens_no_port_for_clients(tmp_path: Path) -> None:
    assert "listeners=CONTROLLER://127.0.0.1:1003" in controller_properties(PORTS, tmp_path).splitlines()


def test_ports_lie_where_no_client_can_take_them_by_chance() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(port < low and is_free(port) for port in ports)


def test_a_broker_without_a_proxy_has_no_proxied_address(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a proxy"):
        _ = EmbeddedKafka(tmp_path).proxied_servers
