"""Converts librdkafka's settings to those of kstore's clients: other names and defaults. The
callbacks stay here.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from random import randrange
from time import monotonic
from typing import Any

from kstore._fast.record.murmur2 import murmur2
from kstore.clients.compat.confluent.error import KafkaError, KafkaException
from kstore.config.client.configs import CLIENT_CONFIGS, NO_EFFECT, ClientKind

__all__ = ["OWN", "Settings", "consistent", "fnv1a", "murmur2_partition", "settings_of"]

RENAMED: dict[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "message.max.bytes": "max.request.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.ca.location": "ssl.truststore.location",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}
OWN: dict[str, Any] = {
    "error_cb": None, "stats_cb": None, "throttle_cb": None, "on_delivery": None,
    "dr_cb": None, "on_commit": None, "logger": None, "statistics.interval.ms": 0,
    "queue.buffering.max.messages": 100_000, "enable.auto.offset.store": True,
    "enable.partition.eof": False, "enable.auto.commit": True, "auto.commit.interval.ms": 5_000,
    "partitioner": "consistent_random",
}  # fmt: skip
"""Settings that these classes implement, with their defaults."""
DEFAULTS: dict[ClientKind, dict[str, Any]] = {
    "producer": {"linger.ms": 5, "delivery.timeout.ms": 300_000},
    "consumer": {"isolation.level": "read_committed", "allow.auto.create.topics": False},
    "admin": {},
}
"""librdkafka's visible defaults that differ from Kafka's."""
WITHOUT_EFFECT = frozenset({
    "api.version.fallback.ms", "api.version.request", "api.version.request.timeout.ms",
    "auto.commit.enable", "batch.num.messages", "broker.address.family", "broker.address.ttl",
    "broker.version.fallback", "builtin.features", "connections.max.idle.ms",
    "consume.callback.max.messages", "coordinator.query.interval.ms", "debug",
    "delivery.report.only.error", "enable.gapless.guarantee", "enable.metrics.push",
    "enable.random.seed", "enable.sasl.oauthbearer.unsecure.jwt", "fetch.error.backoff.ms",
    "fetch.queue.backoff.ms", "group.protocol.type", "log.connection.close", "log.queue",
    "log.thread.name", "log_level", "max.poll.records", "message.copy.max.bytes",
    "metadata.request.timeout.ms", "msg_order_cmp", "offset.store.method", "plugin.library.paths",
    "queue.buffering.backpressure.threshold", "queued.min.messages", "queuing.strategy",
    "receive.message.max.bytes", "reconnect.backoff.jitter.ms", "socket.blocking.max.ms",
    "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable",
    "sticky.partitioning.linger.ms", "topic.blacklist", "topic.metadata.propagation.max.ms",
    "topic.metadata.refresh.fast.cnt", "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.sparse",
})  # fmt: skip
"""Tuning of librdkafka's internals, without effect here."""
RESETS = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest",
          "error": "none"}  # fmt: skip
Chooser = Callable[[str, Any, Any, int], int]


class Settings(dict[str, Any]):
    """The settings of kstore's client, by dotted names; `own` has the settings of this package."""

    def __init__(self) -> None:
        super().__init__()
        self.own: dict[str, Any] = dict(OWN)


def settings_of(kind: ClientKind, given: tuple[Any, ...], keywords: Mapping[str, Any]) -> Settings:
    """The settings of a constructor's arguments.

    Raises TypeError if the argument is not a mapping; KafkaException with _INVALID_ARG for an
    unknown name.
    """
    if len(given) > 1 or not (given or keywords) or (given and not isinstance(given[0], dict)):
        raise TypeError("expected configuration dict")
    merged = {**(given[0] if given else {}), **keywords}
    merged |= merged.pop("default.topic.config", None) or {}
    found = Settings()
    found.update(DEFAULTS[kind])
    for typed, value in merged.items():
        _put(found, kind, typed, value)
    if kind != "admin":
        _adapt(found, kind)
    if "ssl.truststore.location" in found or "ssl.truststore.certificates" in found:
        found.setdefault("ssl.truststore.type", "PEM")
    return found


def _put(found: Settings, kind: ClientKind, typed: str, value: Any) -> None:
    name = typed if typed in OWN else RENAMED.get(typed, typed)
    if name == "oauth_cb":
        found["sasl.login.callback.handler.class"] = _token_source(value, found)
    elif name in OWN:
        found.own[name] = _typed(OWN[name], value)
    elif name in ("ssl.certificate.location", "ssl.key.location"):
        pem = "ssl.keystore.key" if "key.l" in name else "ssl.keystore.certificate.chain"
        with open(os.fspath(value), encoding="ascii") as file:
            found[pem] = file.read()
        found["ssl.keystore.type"] = "PEM"
    elif name == "ssl.endpoint.identification.algorithm":
        found[name] = "" if value == "none" else value
    elif name in ("queue.buffering.max.kbytes", "queued.max.messages.kbytes"):
        sizes = {"producer": "buffer.memory", "consumer": "kstore.fetch.ahead.bytes"}
        if kind in sizes:
            found[sizes[kind]] = int(value) * 1024
    elif name in CLIENT_CONFIGS[kind]:
        found[name] = value
    elif name not in WITHOUT_EFFECT and not _belongs_elsewhere(name):
        text = f'No such configuration property: "{typed}"'
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))


def _belongs_elsewhere(name: str) -> bool:
    """Warn, as librdkafka does, of a consumer's setting in a producer."""
    return name in NO_EFFECT or any(name in rows for rows in CLIENT_CONFIGS.values())


def _typed(default: Any, value: Any) -> Any:
    if isinstance(default, bool):
        return value if isinstance(value, bool) else str(value).lower() == "true"
    return int(value) if isinstance(default, int) else value


def _adapt(found: Settings, kind: ClientKind) -> None:
    """Convert values that have other names."""
    if kind == "producer":
        found["partitioner.class"] = _partitioner(found.own["partitioner"])
        found["max.block.ms"] = found["delivery.timeout.ms"] = int(found["delivery.timeout.ms"])
        request_ms = int(found.get("request.timeout.ms", 30_000))
        least_ms = int(float(found["linger.ms"])) + 1
        found["linger.ms"] = int(float(found["linger.ms"]))
        if found["delivery.timeout.ms"] < least_ms - 1 + request_ms:
            found["request.timeout.ms"] = max(found["delivery.timeout.ms"] - least_ms, 1)
        if "acks" in found:
            found["acks"] = {"-1": "all"}.get(str(found["acks"]), str(found["acks"]))
        return
    found["enable.auto.commit"] = False  # these classes commit stored offsets
    reset = found.get("auto.offset.reset")
    if reset is not None:
        found["auto.offset.reset"] = RESETS.get(str(reset), reset)


def _token_source(callback: Callable[[str], Any], found: Settings) -> Callable[[], Any]:
    def token() -> tuple[str, float]:
        made = callback(str(found.own.get("sasl.oauthbearer.config") or ""))
        return made[0], made[1]

    return token


def _partitioner(name: Any) -> Chooser | str:
    """librdkafka's partitioners, and kstore's by their names."""
    text = str(name)
    hashes = {"consistent": consistent, "murmur2": murmur2_partition, "fnv1a": fnv1a}
    hashed = hashes.get(text.removesuffix("_random"))
    if hashed is None and text != "random":
        return name if callable(name) else text
    spares_keyless = text.endswith("_random")
    chosen: dict[str, tuple[int, float]] = {}

    def choose(topic: str, key: Any, _value: Any, partitions: int) -> int:
        if hashed is not None and (key or (key is not None and hashed is not consistent)):
            return hashed(bytes(key), partitions)
        if hashed is not None and not spares_keyless:
            return hashed(b"", partitions)
        partition, until = chosen.get(topic, (0, 0.0))
        now = monotonic()
        if now >= until or partition >= partitions:
            partition = randrange(partitions)
            chosen[topic] = partition, now + 0.01  # batches fill up meanwhile
        return partition

    return choose


def consistent(key: bytes, partitions: int) -> int:
    """The partition of a key by CRC32."""
    return zlib.crc32(key) % partitions


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition of a key as in Java's producer."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def fnv1a(key: bytes, partitions: int) -> int:
    """The partition of a key by FNV-1a."""
    found = 0x811C9DC5
    for byte in key:
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    signed = found - (1 << 32) if found >> 31 else found
    return abs(signed) % partitions
