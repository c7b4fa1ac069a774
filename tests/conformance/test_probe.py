"""kstore and a real Kafka answer the same requests alike, at every version that both serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.probe import accepted, probe
from tests.conformance.probes.accepted import ACCEPTED
from tests.conformance.probes.compare import Difference


def _assert_only_accepted(found: list[Difference]) -> None:
    unexplained = [
        f"{difference!s:.400}" for difference in found if not accepted(difference, ACCEPTED)
    ]
    assert not unexplained, "\n".join(unexplained[:60])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_answer_differs_from_what_kafka_has_answered_only_where_it_is_meant_to(
    tmp_path: Path,
) -> None:
    _assert_only_accepted(probe(tmp_path, recorded=True))


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("kafka_jars")
def test_every_answer_differs_from_a_live_kafkas_only_where_it_is_meant_to(tmp_path: Path) -> None:
    _assert_only_accepted(probe(tmp_path))
