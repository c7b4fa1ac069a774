"""kstore and a real Kafka answer the same requests alike, at every version that both serve."""

from __future__ import annotations

import pytest

from tests.conformance.kafka_broker import KafkaBroker
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.probe import KSTORE_SETTINGS, SAME_SETTINGS, accepted, compare
from tests.conformance.probes.accepted import ACCEPTED
from tests.conformance.probes.peer import Peer


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("kafka_jars")
def test_every_answer_differs_from_kafkas_only_where_it_is_meant_to(tmp_path):
    """Brokers of its own: what other tests leave in a broker would be in the answers."""
    with (
        KafkaBroker(tmp_path / "kafka", overrides=SAME_SETTINGS) as kafka,
        KstoreBroker(tmp_path / "kstore", overrides=SAME_SETTINGS | KSTORE_SETTINGS) as kstore,
    ):
        peers = [Peer(type(b).__name__, b.host, b.port) for b in (kafka, kstore)]
        found = compare(*peers)
    unexplained = [
        f"{difference!s:.400}" for difference in found if not accepted(difference, ACCEPTED)
    ]
    assert not unexplained, "\n".join(unexplained[:60])
