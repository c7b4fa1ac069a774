"""Connections check quotas only while clients have some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kstore.broker.coordination.memory_store import MemoryStore
from kstore.broker.runtime.quotas.client_quota_manager import ClientQuotaManager
from kstore.broker.state.quotas.client_quotas import IP, USER, Alteration, Entity, entity_of

ANN = entity_of([(USER, "ann")])
HOST = entity_of([(IP, "10.0.0.1")])


class Place:
    def __init__(self, store: MemoryStore) -> None:
        self.connection: Any = SimpleNamespace(quotas=None)
        node: Any = SimpleNamespace(loop=None, config=None)
        plane: Any = SimpleNamespace(
            open_connections=lambda: [self.connection], fetch=SimpleNamespace(peer_listener=None)
        )
        metadata: Any = None
        self.manager = ClientQuotaManager(node, store, plane, metadata, None)

    def set(self, entity: Entity, key: str, value: float | None) -> None:
        stored = self.manager.stored
        stored.alter(entity, [Alteration(key, value)], lambda _: True, validate_only=False)
        stored.notify()


def test_connections_are_told_of_the_first_quota_and_of_the_end_of_the_last() -> None:
    place = Place(MemoryStore())
    assert place.connection.quotas is None
    place.set(ANN, "producer_byte_rate", 1000.0)
    throttles = place.connection.quotas
    assert throttles is place.manager.throttles is not None
    place.set(ANN, "request_percentage", 50.0)
    assert place.connection.quotas is throttles, "what was used counts on"
    place.set(ANN, "producer_byte_rate", None)
    assert place.connection.quotas is throttles
    place.set(ANN, "request_percentage", None)
    assert place.connection.quotas is place.manager.throttles is None


def test_a_quota_of_an_address_alone_costs_connections_nothing() -> None:
    place = Place(MemoryStore())
    place.set(HOST, "connection_creation_rate", 5.0)
    assert place.connection.quotas is place.manager.throttles is None


def test_quotas_that_the_store_has_hold_from_the_start() -> None:
    store = MemoryStore()
    Place(store).set(ANN, "consumer_byte_rate", 1000.0)
    assert Place(store).connection.quotas is not None
