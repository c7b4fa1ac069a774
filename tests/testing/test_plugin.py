"""The pytest plugin, in separate pytest runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.beside.waiting import until

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
SETUP = """
import json, os, pathlib, socket, time
import pytest

def note(**fields):
    with open("notes", "a") as file:
        file.write(json.dumps(fields) + chr(10))
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A separate project with only the plugin, however kstore is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "kstore.testing.plugin", *arguments)


def notes(project: pytest.Pytester) -> list[dict[str, object]]:
    return [json.loads(line) for line in (project.path / "notes").read_text().splitlines()]


def test_a_broker_lasts_for_the_session_a_topic_and_a_fault_for_a_test(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        SETUP
        + """
def look(kstore_broker, kstore_topic, kstore_admin, kstore_faults):
    from kstore.testing.faults import _call
    found = _call(kstore_broker.http_url, "GET", "/faults")["faults"]
    note(pid=kstore_broker.pid, topic=kstore_topic, faults=len(found),
         topics=sorted(kstore_admin.list_topics()))
    kstore_faults.drop("Fetch")

def test_one(kstore_broker, kstore_topic, kstore_admin, kstore_faults):
    look(kstore_broker, kstore_topic, kstore_admin, kstore_faults)

def test_two(kstore_topic, kstore_broker, kstore_faults, kstore_admin):
    look(kstore_broker, kstore_topic, kstore_admin, kstore_faults)

@pytest.mark.kstore_topic(partitions=3, configs={"cleanup.policy": "compact"})
def test_three(kstore_topic, kstore_make_topic, kstore_admin):
    other = kstore_make_topic(partitions=2)
    found = kstore_admin.describe_topics([kstore_topic, other])
    assert {t.name: len(t.partitions) for t in found} == {kstore_topic: 3, other: 2}

def test_four(
    kstore_producer, kstore_consumer, kstore_topic, kstore_bootstrap_servers, kstore_broker
):
    kstore_producer.send(kstore_topic, b"v")
    kstore_producer.flush()
    deadline, found = time.monotonic() + 60, []
    while not found and time.monotonic() < deadline:
        found += kstore_consumer.poll(timeout_ms=1000)
    assert [bytes(record.value) for record in found] == [b"v"]
    assert kstore_bootstrap_servers == str(kstore_broker) == kstore_broker.address
"""
    )
    run(project).assert_outcomes(passed=4)
    first, second = notes(project)
    assert first["pid"] == second["pid"]
    assert first["topic"] != second["topic"]
    assert [row["topics"] for row in (first, second)] == [[first["topic"]], [second["topic"]]]
    assert [row["faults"] for row in (first, second)] == [0, 0]
    assert not _is_alive(int(str(first["pid"])))


@pytest.mark.slow
def test_faults_strike_clients_and_are_counted(project: pytest.Pytester) -> None:
    project.makepyfile(
        SETUP
        + """
from confluent_kafka import Producer

def test_retries(kstore_broker, kstore_topic, kstore_faults):
    producer = Producer({"bootstrap.servers": str(kstore_broker), "retry.backoff.ms": 10})
    with kstore_faults.error(
        "Produce", "NOT_LEADER_OR_FOLLOWER", topic=kstore_topic, partition=0, count=2
    ) as fault:
        producer.produce(kstore_topic, b"v")
        assert producer.flush(60) == 0
    assert fault.struck == 2

def test_wait(kstore_broker, kstore_topic, kstore_faults):
    fault = kstore_faults.delay("Metadata", 1)
    producer = Producer({"bootstrap.servers": str(kstore_broker)})
    producer.list_topics(timeout=60)
    fault.wait()
    with pytest.raises(TimeoutError, match="has matched"):
        fault.wait(10**6, timeout_s=0)
    fault.remove()
    fault.remove()
    assert fault.struck >= 1
    with pytest.raises(ValueError, match="such as Produce"):
        kstore_faults.drop("Prodoce")
"""
    )
    run(project).assert_outcomes(passed=2)


@pytest.mark.slow
def test_faults_strike_share_consumers(project: pytest.Pytester) -> None:
    project.makepyfile(
        SETUP
        + """
from kstore.clients import AdminClient, Producer, ShareConsumer, TopicPartition
from kstore.clients.admin import ConfigResource
from kstore.errors import KafkaError, NotLeaderOrFollowerError

@pytest.fixture(scope="session")
def kstore_settings():
    return {"group.share.min.heartbeat.interval.ms": 500, "group.share.heartbeat.interval.ms": 500}

def test_records_and_acknowledgements(kstore_broker, kstore_topic, kstore_admin, kstore_faults):
    servers, tp = kstore_broker.bootstrap_servers, TopicPartition(kstore_topic, 0)
    earliest = {"share.auto.offset.reset": "earliest"}
    kstore_admin.alter_resource_configs({ConfigResource("group", "g"): earliest})
    with Producer(servers) as producer:
        producer.send(kstore_topic, b"v")
    with ShareConsumer(
        servers, kstore_topic, group_id="g", share_acknowledgement_mode="explicit"
    ) as consumer:
        with kstore_faults.error(
            "ShareFetch", "NOT_LEADER_OR_FOLLOWER", topic=kstore_topic, count=1
        ) as fault:
            (record,) = consumer.poll(60_000)
        assert fault.struck == 1
        with kstore_faults.error("ShareAcknowledge", "NOT_LEADER_OR_FOLLOWER", topic=kstore_topic):
            consumer.acknowledge(record)
            (error,) = consumer.commit().values()
            assert isinstance(error, NotLeaderOrFollowerError)
    with ShareConsumer(servers, kstore_topic, group_id="g") as consumer:
        (record,) = consumer.poll(60_000)
        assert record.delivery_count == 2
        with kstore_faults.disconnect("ShareAcknowledge", count=1):
            (error,) = consumer.commit().values()
            assert isinstance(error, KafkaError)
"""
    )
    run(project).assert_outcomes(passed=1)


@pytest.mark.slow
def test_settings_come_from_a_fixture_the_ini_file_and_the_command_line(
    project: pytest.Pytester,
) -> None:
    project.makeini("[pytest]\nkstore_settings =\n    num.partitions=3\n    broker.rack=ini\n")
    project.makepyfile("""
import pytest

@pytest.fixture(scope="session")
def kstore_settings():
    return {"num.partitions": 2, "message.max.bytes": 5000, "auto.create.topics.enable": False}

def test_it(kstore_admin, kstore_broker):
    told = kstore_admin.describe_configs("1", resource="broker")
    names = ("num.partitions", "message.max.bytes", "auto.create.topics.enable", "broker.rack")
    assert [told[n].value for n in names] == ["3", "5000", "false", "line"]
""")
    run(project, "--kstore-setting", "broker.rack=line").assert_outcomes(passed=1)
    wrong = run(project, "--kstore-setting", "oops")
    wrong.stdout.fnmatch_lines(["*a kstore setting is KEY=VALUE, not 'oops'*"])


@pytest.mark.slow
def test_a_broker_that_does_not_start_says_why(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(kstore_broker): pass")
    result = run(project, "--kstore-setting", "num.partitions=0")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*BrokerError: broker 1 exited before it was ready:*",
                                 "*num.partitions*at least 1*"])  # fmt: skip


@pytest.mark.slow
def test_what_the_broker_wrote_is_shown_with_a_failure(project: pytest.Pytester) -> None:
    project.makepyfile(
        SETUP
        + """
def garbage(broker):
    host, port = broker.address.split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(bytes([255]) * 8)
        assert not sock.recv(1)

def test_good(kstore_broker, kstore_topic):
    garbage(kstore_broker)

def test_bad(kstore_broker, kstore_topic):
    garbage(kstore_broker)
    assert False

def test_it_is_back(kstore_broker, kstore_make_topic):
    kstore_broker.kill()
    assert kstore_broker.pid is None

def test_indeed(kstore_broker, kstore_topic):
    assert kstore_broker.pid
"""
    )
    result = run(project)
    result.assert_outcomes(passed=3, failed=1)
    text = result.stdout.str()
    assert text.count("output of kstore broker 1") == 1
    assert text.count("it sent a request of -1 bytes") == 1, "of the failed test alone"


@pytest.mark.slow
def test_each_worker_has_a_broker_of_its_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        SETUP
        + """
@pytest.mark.parametrize("number", range(4))
def test_it(kstore_broker, kstore_topic, number):
    note(worker=os.environ["PYTEST_XDIST_WORKER"], address=kstore_broker.address)
"""
    )
    run(project, "-p", "xdist.plugin", "-n", "2", "--dist", "each").assert_outcomes(passed=8)
    found = {(row["worker"], row["address"]) for row in notes(project)}
    assert len(found) == len({address for _, address in found}) == 2


@pytest.mark.slow
def test_a_cluster_survives_the_loss_of_a_broker(project: pytest.Pytester) -> None:
    project.makepyfile(
        SETUP
        + """
@pytest.mark.kstore_topic(replication_factor=3)
def test_it(kstore_cluster, kstore_topic, kstore_admin):
    leader = kstore_admin.describe_topics([kstore_topic])[0].partitions[0].leader
    kstore_cluster[leader].kill()
    deadline = time.monotonic() + 60
    while kstore_admin.describe_topics([kstore_topic])[0].partitions[0].leader in (leader, -1):
        assert time.monotonic() < deadline
        time.sleep(0.05)

def test_all_are_back(kstore_cluster, kstore_topic, kstore_faults):
    assert sorted(kstore_cluster.http_urls) == [1, 2, 3]
    fault = kstore_faults.drop("Fetch", node=2)
    assert fault.struck == 0
"""
    )
    run(project).assert_outcomes(passed=2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_broker_outlives_pytest(project: pytest.Pytester, number: signal.Signals) -> None:
    project.makepyfile(
        SETUP
        + """
def test_it(kstore_broker):
    note(pid=kstore_broker.pid)
    time.sleep(600)
"""
    )
    tests = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "kstore.testing.plugin"], cwd=project.path,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until((project.path / "notes").exists)
        until(lambda: notes(project) != [])
        [row] = notes(project)
        assert _is_alive(int(str(row["pid"])))
        tests.send_signal(number)
        tests.wait(TIMEOUT_S)
        until(lambda: not _is_alive(int(str(row["pid"]))))
    finally:
        tests.kill()
        tests.wait()


def test_loading_the_plugin_loads_nothing_else() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import kstore.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    loaded = ["kstore", "kstore.testing", "kstore.testing.plugin"]
    assert done.stdout.split() == loaded


def test_pytest_finds_the_plugin_where_kstore_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"kstore": "kstore.testing.plugin"}


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
