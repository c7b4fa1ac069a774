"""Restarting the broker between a client's produce and its consume: a clean stop, and kill -9."""

from __future__ import annotations

import threading

import pytest

from tests.conformance.conftest import AGAINST_KAFKA
from tests.conformance.libraries.python_clients import PYTHON_CLIENTS
from tests.conformance.libraries.samples import samples

pytestmark = pytest.mark.own_python


def client_of(broker, name: str = "confluent-kafka"):
    return PYTHON_CLIENTS[name](broker.bootstrap)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_records_topics_and_group_offsets_outlive_a_restart(own_broker, topic, how):
    client = client_of(own_broker)
    client.create_topic(topic, 2, max_message_bytes="2000000")
    sent = samples(60)
    client.send(topic, sent[:40], codec="lz4", idempotent=True)
    assert len(client.read_as_group(topic, "g", 40)) == 40
    getattr(own_broker, how)()
    own_broker.start()
    assert [(r.offset, r.sample) for r in client.read(topic, 40)] == list(enumerate(sent[:40]))
    assert client.send(topic, sent[40:]) == list(range(40, 60))
    found = client.read_as_group(topic, "g", 20)
    assert [(r.offset, r.sample) for r in found] == list(enumerate(sent))[40:]


def test_a_clean_stop_exits_0_and_the_next_start_recovers_nothing(own_broker, topic):
    if AGAINST_KAFKA:
        pytest.skip("the words are kstore's")
    client = client_of(own_broker)
    client.create_topic(topic, 3)
    client.send(topic, samples(30))
    assert own_broker.stop() == 0
    before = own_broker.error_output()
    own_broker.start()
    assert "recover" not in own_broker.error_output()[len(before) :].lower()
    assert len(client.read(topic, 30)) == 30


@pytest.mark.skipif(AGAINST_KAFKA, reason="Kafka takes 13 s to answer again after a kill -9")
@pytest.mark.slow
def test_a_producer_goes_on_over_a_kill_without_loss_or_duplicate(own_broker, topic):
    client = client_of(own_broker)
    client.create_topic(topic, 1)
    client.send(topic, samples(1))  # the log and its leader are there
    sent = samples(2000, seed=5)
    failure: list[BaseException] = []

    def produce() -> None:
        try:
            for start in range(0, len(sent), 100):
                client.send(topic, sent[start : start + 100], idempotent=True)
        except BaseException as error:  # noqa: BLE001 (shown by the assertion below)
            failure.append(error)

    worker = threading.Thread(target=produce)
    worker.start()
    for _ in range(3):
        worker.join(0.3)
        own_broker.kill()
        own_broker.start()
    worker.join(90)
    assert not failure
    assert not worker.is_alive()
    found = client.read(topic, len(sent) + 1)
    assert [(r.offset, r.sample) for r in found[1:]] == list(enumerate(sent, start=1))
