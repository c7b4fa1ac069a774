"""kstore and a real Kafka answer the same requests alike, at every version that both serve."""

from __future__ import annotations

import pytest

from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.probe import SAME_SETTINGS, accepted, compare
from tests.conformance.probes.accepted import ACCEPTED
from tests.conformance.probes.story import Peer


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_answer_differs_from_kafkas_only_where_it_is_meant_to(kafka, tmp_path):
    with KstoreBroker(tmp_path, overrides=SAME_SETTINGS) as kstore:
        peers = [Peer(b.__class__.__name__, b.host, b.port) for b in (kafka, kstore)]
        found = compare(*peers)
    unexplained = [str(difference) for difference in found if not accepted(difference, ACCEPTED)]
    assert not unexplained, "\n".join(unexplained[:60])
