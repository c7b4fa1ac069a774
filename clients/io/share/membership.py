"""Sends the heartbeats of a share group's member."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import uuid4

from kstore.clients.core.share.member import ShareMember, ShareState
from kstore.clients.io.cluster import GROUP, ClusterClient
from kstore.errors import KafkaError
from kstore.protocol.shares.heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

__all__ = ["Membership"]


class Membership:
    """A member, on the loop. `changed` is called after a new assignment or an error."""

    def __init__(
        self, cluster: ClusterClient, settings: Mapping[str, Any], changed: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: KafkaError | None = None
        self.member = ShareMember(
            settings["group.id"],
            _new_member_id(),
            random.random,
            rack=settings["client.rack"] or None,
            max_poll_interval_ms=settings["max.poll.interval.ms"],
            retry_backoff_ms=settings["retry.backoff.ms"],
            retry_backoff_max_ms=settings["retry.backoff.max.ms"],
        )

    @property
    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    def subscribe(self, topics: frozenset[str]) -> None:
        """Read these topics."""
        self._error = None
        self.member.subscribe(topics)
        self._wake.set()

    def take_error(self) -> KafkaError | None:
        """For poll(): raises the error of a member that was refused, each time, until it subscribes
        again.
        """
        error = self._error
        if self.member.state is not ShareState.FAILED:
            self._error = None
        return error

    def polled(self) -> None:
        """The user polls; the first poll joins the group."""
        before = self.member.state
        self.member.polled(self._now_ms)
        if self.member.state is not before:
            self._wake.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        while True:
            due_ms = self.member.next_ms()
            self._wake.clear()
            if due_ms is None or due_ms > self._now_ms:
                with contextlib.suppress(TimeoutError):
                    wait_s = None if due_ms is None else (due_ms - self._now_ms) / 1000
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                continue
            if self.member.is_idle(self._now_ms):
                await self.leave()
                continue
            await self._beat(self.member.heartbeat())

    async def _beat(self, request: ShareGroupHeartbeatRequest) -> None:
        member = self.member
        before = member.assigned
        try:
            response = await self._ask(request)
        except KafkaError as error:
            self._forget()
            member.failed(self._now_ms)
            if not error.retriable:
                self._fail(error)
            return
        problem = member.answered(response, self._now_ms)
        if problem is not None and problem.retriable:
            self._forget()
        elif problem is not None:
            self._fail(problem)
        if member.assigned != before:
            self._changed()

    def _fail(self, error: KafkaError) -> None:
        self._error = error
        self._changed()

    def _forget(self) -> None:
        self._cluster.forget_coordinator(GROUP, self.member.group_id)

    async def _ask(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        node_id = await self._cluster.coordinator(GROUP, self.member.group_id)
        answer = await self._cluster.ask(node_id, request)
        return cast(ShareGroupHeartbeatResponse, answer)

    async def leave(self) -> None:
        """Leave the group, whether or not the coordinator can be reached."""
        request = self.member.leave()
        if request is not None:
            with contextlib.suppress(KafkaError):
                await self._ask(request)

    async def close(self) -> None:
        """Leave, and send nothing afterwards."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.leave()


def _new_member_id() -> str:
    """22 characters, as other clients: a UUID in base64 for URLs."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
