"""A client's connections without the client, for tests with scripted brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kstore.clients.io.cluster import ClusterClient
from kstore.config.client.configs import client_settings

LONG_S = 60
QUICK = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "retry_backoff_max_ms": 20}


def client(*servers: str, **keywords: Any) -> ClusterClient:
    """A client that tries again soon."""
    return ClusterClient(client_settings("admin", servers, QUICK | keywords))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's body; it ends in any case."""
    asyncio.run(asyncio.wait_for(main, LONG_S))
