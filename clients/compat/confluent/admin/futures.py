"""Shared by the parts of AdminClient: kstore's client on its thread, and futures for each item."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from kstore.clients.admin import AdminClient as KstoreAdmin
from kstore.clients.compat.confluent.admin.descriptions import node
from kstore.clients.compat.confluent.client import Client, made
from kstore.clients.compat.confluent.error import raised_as
from kstore.clients.compat.confluent.model import Node
from kstore.clients.compat.confluent.settings import settings_of

__all__ = ["AdminBase", "Futures", "names_of"]

K = TypeVar("K", bound=Hashable)
Futures = dict[K, "Future[Any]"]


class AdminBase(Client):
    """Runs coroutines of kstore's client and returns futures for their results."""

    def __init__(self, conf: dict[str, Any], **keywords: Any) -> None:
        settings = settings_of("admin", (conf,), keywords)
        self._admin = made(KstoreAdmin, settings)
        self._client: Any = self._admin._client
        self._attach("admin", settings.own, self._admin._thread, self._client._cluster)

    # ---- futures ----

    def _begin(
        self,
        call: Coroutine[Any, Any, Any],
        options: Mapping[str, Any],
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Run a coroutine of kstore's client, then one of the two callbacks, on its loop."""
        wait_s = options.get("request_timeout") or options.get("operation_timeout")

        async def run() -> None:
            try:
                async with asyncio.timeout(wait_s):
                    found = await call
                done(found)
            except Exception as error:  # noqa: BLE001 - the futures raise it
                failed(raised_as(error))

        running = asyncio.run_coroutine_threadsafe(run(), self._thread.loop)
        running.add_done_callback(lambda _ended: self._thread)  # keeps the thread until then

    def _each(
        self,
        items: Mapping[Any, K],
        call: Coroutine[Any, Any, Any],
        options: Mapping[str, Any],
        result: Callable[[K, Any], Any] = lambda _item, _found: None,
    ) -> Futures[K]:
        """A future for each item; ``items`` maps the keys of kstore's Results to items."""
        futures: Futures[K] = {item: Future() for item in items.values()}

        def done(found: Any) -> None:
            for key, item in items.items():
                error = found.errors.get(key)
                if error is not None:
                    futures[item].set_exception(raised_as(error))
                elif key in found:
                    futures[item].set_result(result(item, found[key]))
                else:
                    futures[item].set_result(result(item, None))

        def failed(error: BaseException) -> None:
            for future in futures.values():
                if not future.done():
                    future.set_exception(error)

        self._begin(call, options, done, failed)
        return futures

    def _one(
        self,
        call: Coroutine[Any, Any, Any],
        options: Mapping[str, Any],
        result: Callable[[Any], Any],
    ) -> Future[Any]:
        future: Future[Any] = Future()
        self._begin(
            call, options, lambda found: future.set_result(result(found)), future.set_exception
        )
        return future

    async def _nodes(self) -> dict[int, Node]:
        found = await self._client.describe_cluster()
        return {row.node_id: node(row) for row in found.brokers}


def names_of(given: Any) -> list[str]:
    """A list of names, checked."""
    if not isinstance(given, (list, tuple, set)):
        raise TypeError(f"Expected list of strings, not {given!r}")
    if not given:
        raise ValueError("Expected non-empty list of strings")
    return list(given)
