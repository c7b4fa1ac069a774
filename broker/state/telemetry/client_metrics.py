"""Which client pushes which metrics, and how often (KIP-714): client instances, the subscriptions
that match them, and the errors of requests.

The rules and their order are Kafka's. The pushed metrics are not parsed here.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from kstore.broker.state.linear_regex import LinearRegex
from kstore.errors import ErrorCode

__all__ = ["ACCEPTED_COMPRESSION", "ClientInstance", "Instances", "Subscription"]

ACCEPTED_COMPRESSION = (4, 3, 1, 2)
"""The accepted compression types, the preferred one first: zstd, lz4, gzip, snappy."""
KNOWN_COMPRESSION = (0, *ACCEPTED_COMPRESSION)
DEFAULT_INTERVAL_MS = 300_000
ALL_METRICS = "*"
MAX_INSTANCES = 16_384
KEPT_INTERVALS = 3
MIN_KEPT_MS = 60_000


class Subscription(Protocol):
    """A client metrics subscription."""

    @property
    def interval_ms(self) -> int:
        """How often its clients push."""

    @property
    def metrics(self) -> Sequence[str]:
        """Prefixes of metric names; ``*`` means all."""

    @property
    def match(self) -> Mapping[str, LinearRegex]:
        """Key to the pattern that must match the client's whole value."""


class ClientInstance:
    """One client: the metrics that it should push, and the times of its last requests."""

    __slots__ = (
        "instance_id", "interval_ms", "last_error", "last_get_ms", "last_push_ms", "metrics",
        "subscription_id", "terminating", "version",
    )  # fmt: skip

    def __init__(
        self, instance_id: UUID, version: int, subscriptions: Sequence[Subscription]
    ) -> None:
        self.instance_id = instance_id
        self.version = version
        self.metrics: list[str] = []
        self.interval_ms = DEFAULT_INTERVAL_MS
        self.terminating = False
        self.last_error: int = ErrorCode.NONE
        self.last_get_ms = 0
        self.last_push_ms = 0
        if subscriptions:
            names = dict.fromkeys(name for found in subscriptions for name in found.metrics)
            self.metrics = [ALL_METRICS] if ALL_METRICS in names else [n for n in names if n]
            self.interval_ms = min(found.interval_ms for found in subscriptions)
        text = f"{sorted(self.metrics)}{self.interval_ms}".encode()
        crc = zlib.crc32(text + instance_id.bytes)
        self.subscription_id = crc - (1 << 32) if crc >> 31 else crc

    def may_get(self, now_ms: int) -> bool:
        """Whether the client may request its subscriptions again. If so, notes the request."""
        last_ms = max(self.last_get_ms, self.last_push_ms)
        if now_ms - last_ms >= self.interval_ms:
            self.last_get_ms = now_ms
            return True
        # The client was asked to request them again.
        retries = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return self.last_error in retries

    def may_push(self, now_ms: int) -> bool:
        """Whether the client may push: first after it has requested its subscriptions, then once
        per interval.
        """
        may = self.last_get_ms > self.last_push_ms
        may = may or now_ms - self.last_push_ms >= self.interval_ms
        if may:
            self.last_push_ms = now_ms
        return may

    def refuse_push(
        self, now_ms: int, subscription_id: int, compression: int, size: int, max_bytes: int,
        *, terminating: bool,
    ) -> int:  # fmt: skip
        """The error code for a push. 0 if it is accepted."""
        if self.terminating:
            return ErrorCode.INVALID_REQUEST
        if not self.may_push(now_ms) and not terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self.terminating = terminating
        if subscription_id != self.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if compression not in KNOWN_COMPRESSION:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if size > max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE


class Instances:
    """The recently active client instances, up to a limit."""

    def __init__(self, max_instances: int = MAX_INSTANCES) -> None:
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._max = max_instances

    def __len__(self) -> int:
        return len(self._instances)

    def instance(
        self,
        instance_id: UUID,
        client: Mapping[str, str],
        subscriptions: Sequence[Subscription],
        version: int,
        now_ms: int,
    ) -> ClientInstance:
        """The client's instance, created again if the subscriptions have changed.

        ``client`` has the client's value for each key that a subscription may match. Subscriptions
        with the same ``version`` are equal.
        """
        found = self._instances.get(instance_id)
        if found is None or found.version != version:
            matching = [row for row in subscriptions if _matches(row.match, client)]
            found = self._instances[instance_id] = ClientInstance(instance_id, version, matching)
        self._instances.move_to_end(instance_id)
        self._expire(now_ms)
        return found

    def _expire(self, now_ms: int) -> None:
        """Remove clients that were inactive for some of their intervals, oldest first."""
        while len(self._instances) > 1:
            oldest = next(iter(self._instances.values()))
            kept_ms = max(KEPT_INTERVALS * oldest.interval_ms, MIN_KEPT_MS)
            silent_ms = now_ms - max(oldest.last_get_ms, oldest.last_push_ms)
            if silent_ms <= kept_ms and len(self._instances) <= self._max:
                return
            self._instances.popitem(last=False)


def _matches(patterns: Mapping[str, LinearRegex], client: Mapping[str, str]) -> bool:
    return all(pattern.matches(client.get(key, "")) for key, pattern in patterns.items())
