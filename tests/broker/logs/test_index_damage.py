"""A served topic whose index is damaged: clients notice nothing, and the operator does."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kstore.record import decode
from tests.beside.waiting import until
from tests.broker.harness.topic_client import TopicClient
from tests.conformance.kafka_broker import free_port
from tests.conformance.kstore_broker import KstoreBroker

COUNT = 300
PAGE = 4096
# In the broker's process: at SIGUSR1 every transaction on an index fails as on a damaged page.
DAMAGE = """
import signal

def damage(*_):
    import lmdb
    from kstore.log.index.environment import SharedEnvironment

    class Damaged:
        def __init__(self, real):
            self.real = real
        def begin(self, **_):
            raise lmdb.CorruptedError("by a test")
        def __getattr__(self, name):
            return getattr(self.real, name)

    for shared in SharedEnvironment.open.values():
        shared.env = Damaged(shared.env)

signal.signal(signal.SIGUSR1, damage)
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[KstoreBroker, Callable[[], int]]]:
    """A broker with a topic, and what it has counted of damage."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sitecustomize.py").write_text(DAMAGE, encoding="utf-8")
    url = f"127.0.0.1:{free_port()}"
    broker = KstoreBroker(
        tmp_path / "broker",
        overrides={"kstore.metrics.listener": f"http://{url}"},
        environment={"PYTHONPATH": str(tmp_path / "code")},
    )

    def damages() -> int:
        with urllib.request.urlopen(f"http://{url}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        (line,) = [each for each in lines if each.startswith("kstore_log_index_damages_total ")]
        return int(line.split()[1])

    broker.start()
    client = TopicClient(broker)
    client.create("t", index_interval_bytes="0")
    for offset in range(COUNT):
        assert client.produce("t").base_offset == offset
    yield broker, damages
    broker.stop()


def assert_all_served(client: TopicClient, count: int) -> None:
    for offset in range(count):
        answer = client.fetch_at("t", offset, max_bytes=1)
        assert answer.error_code == 0
        assert next(iter(decode(answer.records))).offset == offset


@pytest.mark.slow
def test_a_damaged_index_costs_a_restarted_broker_nothing(
    served: tuple[KstoreBroker, Callable[[], int]],
) -> None:
    broker, damages = served
    assert damages() == 0
    broker.stop()
    index = broker.log_dir / ".kstore.mdb"
    data = bytearray(index.read_bytes())
    data[2 * PAGE :] = bytes(len(data) - 2 * PAGE)
    index.write_bytes(data)
    broker.start()
    client = TopicClient(broker)
    assert_all_served(client, COUNT)
    assert client.produce("t").base_offset == COUNT
    assert damages() == 1
    assert f"the index {index} is damaged" in broker.error_output()
    broker.stop()
    broker.start()
    assert damages() == 0
    assert_all_served(TopicClient(broker), COUNT + 1)


@pytest.mark.slow
def test_an_index_that_is_damaged_under_a_running_broker_is_made_anew(
    served: tuple[KstoreBroker, Callable[[], int]],
) -> None:
    broker, damages = served
    broker.stop()
    broker.start()  # what was in memory is in the index alone
    client = TopicClient(broker)
    assert broker.process is not None
    broker.process.send_signal(signal.SIGUSR1)
    assert_all_served(client, COUNT)
    assert client.produce("t").base_offset == COUNT
    until(lambda: damages() == 1, "the damage is counted")
    assert_all_served(client, COUNT + 1)
    assert broker.stop() == 0
    assert broker.error_output().count("is damaged: by a test") == 1
    broker.start()
    assert damages() == 0
    assert_all_served(TopicClient(broker), COUNT + 1)
