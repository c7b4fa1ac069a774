"""kstore and a real Kafka answer the same requests alike, at every version that both serve."""

from __future__ import annotations

import pytest

from tests.conformance.probe import accepted, probe
from tests.conformance.probes.accepted import ACCEPTED


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("kafka_jars")
def test_every_answer_differs_from_kafkas_only_where_it_is_meant_to(tmp_path):
    found = probe(tmp_path)
    unexplained = [
        f"{difference!s:.400}" for difference in found if not accepted(difference, ACCEPTED)
    ]
    assert not unexplained, "\n".join(unexplained[:60])
