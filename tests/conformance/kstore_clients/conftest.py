"""The brokers for tests of kstore's clients: the one under test, then a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kstore.clients import AdminClient
from tests.conformance.live_kafka import LIVE_KAFKA


@pytest.fixture(params=["peer", pytest.param("kafka", marks=LIVE_KAFKA)])
def servers(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param).bootstrap


@pytest.fixture
def admin(servers: str) -> Iterator[AdminClient]:
    with AdminClient(servers, default_api_timeout_ms=30_000) as client:
        yield client
