"""Clients with TLS on asyncio's own event loop, which reads otherwise than uvloop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kstore.clients import AIOConsumer, AIOProducer
from kstore.net.transport import new_loop
from kstore.testing import Broker
from tests.broker.runtime.security.tls_harness import Authority

LARGE = bytes(300_000)
"""More than one read, and more than the buffer for small answers."""


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_loop])
def test_records_of_any_size_come_through_tls(tmp_path: Path, loop) -> None:
    authority = Authority(tmp_path / "tls")

    async def story(address: str) -> list[bytes | None]:
        client = {
            "bootstrap.servers": address, "security.protocol": "SSL",
            "ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.ca_path),
        }  # fmt: skip
        async with AIOProducer(client) as producer:
            for value in (b"small", LARGE, b"last"):
                await producer.send("orders", value=value)
        found: list[bytes | None] = []
        async with AIOConsumer({**client, "auto.offset.reset": "earliest"}, "orders") as own:
            while len(found) < 3:
                found += [record.value for record in await own.poll(1000)]
        return found

    settings = {
        "listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL",
        **authority.broker_settings(),
    }  # fmt: skip
    with Broker(tmp_path / "broker", settings) as broker, asyncio.Runner(loop_factory=loop) as run:
        assert run.run(story(broker.address)) == [b"small", LARGE, b"last"]
