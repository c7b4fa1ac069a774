"""broker/runtime/client_throttles.py: who is held to a quota that holds for all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.client_throttles import ClientThrottles

FETCH = 1


class Config(dict[str, int]):
    clustered = True


@pytest.mark.parametrize(
    ("client_id", "held"),
    [
        (b"broker-2", False),
        (b"broker-2-fetcher", False),
        (b"broker-7-fetcher", True),  # there is no such broker
        (b"broker-2-fetcher-too", True),
        (b"somebody", True),
        (b"", True),
    ],
)
def test_brokers_of_the_cluster_are_no_clients_with_quotas(client_id: bytes, held: bool) -> None:
    unmuted: list[object] = []
    loop = SimpleNamespace(time=lambda: 100.0, call_later=lambda *call: unmuted.append(call))
    config = Config({"quota.window.num": 11, "quota.window.size.seconds": 1})
    broker: Any = SimpleNamespace(
        loop=loop, config=config, image=SimpleNamespace(brokers={1: None, 2: None})
    )
    every_client = (("client-id", None),)
    quotas: Any = SimpleNamespace(quotas={every_client: {"consumer_byte_rate": 1.0}})
    connection: Any = SimpleNamespace(client_id=client_id, unmute=None)
    wait_ms = ClientThrottles(broker, quotas).charge(connection, FETCH, 1_000_000)
    assert (wait_ms > 0) == held
