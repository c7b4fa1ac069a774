"""A new topic for a test."""

from __future__ import annotations

import uuid

import pytest

from kstore.clients import AdminClient
from tests.conformance.kstore_broker import KstoreBroker


@pytest.fixture
def topic(broker: KstoreBroker) -> str:
    """One partition, no records."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    with AdminClient(broker.bootstrap) as admin:
        admin.create_topics([name])
    return name
