"""AIOShareConsumer: the ShareConsumer for asyncio, on the user's loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from kstore.clients.consumer_calls import WakeupError
from kstore.clients.core.share.acknowledgements import AcknowledgeType, acknowledge_type
from kstore.clients.io.share.shell import InterruptedPollError, ShareShell
from kstore.clients.io.unclosed import Unclosed
from kstore.clients.serializers import Deserializers
from kstore.clients.share_consumer import (
    CLOSE_MS,
    FORGOTTEN_MS,
    names_of,
    place_of,
    share_settings,
    shown,
    verdict,
)
from kstore.clients.share_record import AcknowledgementCallback, OnError, ShareRecord, result_of
from kstore.errors import KafkaError
from kstore.items import Items
from kstore.types import TopicPartition

__all__ = ["AIOShareConsumer"]

Handler = Callable[[ShareRecord], Awaitable[object] | object]


class AIOShareConsumer:
    """The ShareConsumer for asyncio. Arguments, results and errors are those of ShareConsumer. Use
    it on one loop, in one task at a time.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Items[str] | None = None,
        /,
        *topics: str,
        **keywords: Any,
    ) -> None:
        self._settings, self._names = share_settings(config, topics, keywords)
        self._deserializers = Deserializers(self._settings)
        self._callback: AcknowledgementCallback | None = None
        self._begun: ShareShell | None = None
        self._unclosed: Unclosed | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._shell  # noqa: B018  raises the errors of the settings
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _shell(self) -> ShareShell:
        """Created on the running loop when it is first needed."""
        if self._is_closed:
            raise RuntimeError("the client is closed")
        if self._begun is None:
            shell = self._begun = ShareShell(self._settings)
            self._unclosed = Unclosed(
                self, shell.loop, lambda: shell.close(FORGOTTEN_MS),
                what="share consumers to leave their groups", patience_s=FORGOTTEN_MS / 1000,
            )  # fmt: skip
            if self._names:
                shell.subscribe(self._names)
        return self._begun

    # ---- subscription ----

    def subscribe(self, topics: Items[str]) -> None:
        """Like ShareConsumer.subscribe. Raises ValueError for an empty list: use
        `unsubscribe()`.
        """
        names = names_of(topics)
        if not names:
            raise ValueError("there are no topics to subscribe to: use unsubscribe()")
        self._shell.subscribe(names)

    async def unsubscribe(self) -> None:
        """Release the held records, leave the group, and stop reading."""
        await self._shell.unsubscribe()
        await self._report_results()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self._shell.topics

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads. Other members may read them too."""
        return self._shell.assignment()

    # ---- records ----

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[ShareRecord]:
        """Like ShareConsumer.poll."""
        return await self._polled(timeout_ms, self._limit if max_records is None else max_records)

    async def _polled(self, timeout_ms: float | None, limit: int) -> list[ShareRecord]:
        try:
            rows = await self._shell.poll(timeout_ms, limit)
        except InterruptedPollError as woken:
            raise WakeupError(str(woken)) from None
        finally:
            await self._report_results()
        return shown(rows, self._deserializers)

    @property
    def _limit(self) -> int:
        limit: int = self._settings["max.poll.records"]
        return limit

    async def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Like iterating over a ShareConsumer. Use contextlib.aclosing, or close the consumer, to
        release records that the loop did not reach: without it, Python ends the iteration only
        later.
        """
        timeout_ms = self._settings["consumer.timeout.ms"]
        try:
            while found := await self._polled(None if timeout_ms < 0 else timeout_ms, self._limit):
                for record in found:
                    yield record
                    if not self._shell.is_explicit:
                        self.acknowledge(record)
        finally:
            self._release_rest()

    async def run(
        self, handler: Handler, *, on_error: OnError = AcknowledgeType.RELEASE,
        idle_ms: float | None = None,
    ) -> None:  # fmt: skip
        """Like ShareConsumer.run. The handler may return an awaitable."""
        try:
            while records := await self._polled(idle_ms, self._limit):
                for record in records:
                    if self._shell.holdings.has(*place_of(record)):
                        self.acknowledge(record, await self._handled(handler, record, on_error))
        except WakeupError:
            return
        finally:
            self._release_rest()

    async def _handled(
        self, handler: Handler, record: ShareRecord, on_error: OnError
    ) -> AcknowledgeType:
        try:
            answer = handler(record)
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:  # noqa: BLE001  the user chooses how to handle it
            return verdict(on_error, record, error)
        return AcknowledgeType.ACCEPT

    def _release_rest(self) -> None:
        if not self._is_closed:
            self._shell.holdings.acknowledge_all(AcknowledgeType.RELEASE)
            self._shell.flush()

    def wakeup(self) -> None:
        """Like ShareConsumer.wakeup."""
        if self._begun is not None:
            self._begun.wakeup()

    # ---- acknowledgements ----

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType | str = AcknowledgeType.ACCEPT
    ) -> None:
        """Like ShareConsumer.acknowledge."""
        self._shell.holdings.acknowledge(*place_of(record), acknowledge_type(kind))

    def acknowledge_range(
        self, partition: TopicPartition, first_offset: int, last_offset: int,
        kind: AcknowledgeType | str = AcknowledgeType.ACCEPT,
    ) -> int:  # fmt: skip
        """Like ShareConsumer.acknowledge_range."""
        tp = TopicPartition(*partition)
        holdings = self._shell.holdings
        return holdings.acknowledge_range(tp, first_offset, last_offset, acknowledge_type(kind))

    async def commit(
        self, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Like ShareConsumer.commit."""
        try:
            return await self._shell.commit(timeout_ms)
        finally:
            await self._report_results()

    def commit_async(self) -> None:
        """Like ShareConsumer.commit_async."""
        shell = self._shell
        if not shell.is_explicit:
            shell.holdings.acknowledge_all(AcknowledgeType.ACCEPT)
        shell.flush()

    def set_acknowledgement_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Like ShareConsumer.set_acknowledgement_callback. The callback may return an awaitable."""
        self._callback = callback

    async def _report_results(self) -> None:
        while self._begun is not None and self._begun.completed:
            result = result_of(self._begun.completed.popleft())
            if self._callback is not None:
                answer = self._callback(result)
                if inspect.isawaitable(answer):
                    await answer

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Like ShareConsumer.acquisition_lock_timeout_ms."""
        return self._shell.lock_timeout_ms

    # ---- close ----

    async def close(self, timeout_ms: float = CLOSE_MS) -> None:
        """Like ShareConsumer.close."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._unclosed is not None:
            self._unclosed.closed()
        if self._begun is not None:
            await self._begun.close(timeout_ms)
            await self._report_results()
