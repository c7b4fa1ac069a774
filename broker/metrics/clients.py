"""Connections and authentications by listener, TLS, quotas, and metrics that clients push
(KIP-714).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kstore.broker.metrics.measured import Measured, plain
from kstore.broker.runtime.security.authentication_counts import KINDS
from kstore.broker.state.exposition import Family, Metrics, sample
from kstore.broker.state.work import ROWS_BETWEEN

if TYPE_CHECKING:
    from kstore.broker.runtime.quotas.client_throttles import ClientThrottles

__all__ = ["of_listeners", "of_pushes", "of_quotas"]

SOCKETS = "kafka_server_socket_server_metrics"
CONNECTIONS = Family(f"{SOCKETS}_connection_count", "gauge", "Open connections, by listener")
TLS_INFO = Family(
    f"{SOCKETS}_connections_tls_info", "gauge", "Open connections by TLS version and cipher"
)
BYTE_RATE = Family(
    "kafka_server_quota_byte_rate", "gauge",
    "Bytes per second of a client that has a quota, as the quota measures them",
)  # fmt: skip
REQUEST_TIME = Family(
    "kafka_server_quota_request_time", "gauge",
    "Percent of a core that the requests of a client with a quota take",
)  # fmt: skip
BOUND = Family("kstore_quota_bound", "gauge", "The quotas that are set")
RESOURCES = {"producer_byte_rate": "Produce", "consumer_byte_rate": "Fetch"}
REQUEST_PERCENTAGE = "request_percentage"


def of_listeners(broker: Measured) -> Metrics:
    """Connections, and how many are authenticated."""
    counts = dict.fromkeys((listener.name for listener in broker.config.listeners), 0)
    secure: Counter[tuple[str, str, str]] = Counter()
    for number, connection in enumerate(broker.plane.open_connections()):
        counts[connection.listener] = counts.get(connection.listener, 0) + 1
        if broker.security is not None and not connection.is_closed:
            tls = connection.tls_object()
            cipher = None if tls is None else tls.cipher()
            if cipher is not None:
                secure[connection.listener, cipher[0], tls.version() or ""] += 1
        if number % ROWS_BETWEEN == 0:
            yield ""
    yield CONNECTIONS
    for listener, count in sorted(counts.items()):
        yield sample(CONNECTIONS.name, count, listener=listener)
    yield TLS_INFO
    for (listener, cipher_name, version), count in sorted(secure.items()):
        yield sample(TLS_INFO.name, count, listener=listener, cipher=cipher_name, protocol=version)
    known = {} if broker.security is None else broker.security.counts.by_listener()
    for kind in KINDS:
        family = Family(
            f"{SOCKETS}_{kind}_total", "counter",
            f"Number of times: {kind.replace('_', ' ')}, by listener",
        )  # fmt: skip
        yield family
        for listener in sorted(counts):
            yield sample(family.name, known.get((kind, listener), 0), listener=listener)
    if broker.security is not None:
        yield from broker.security.counts.metrics()


def of_quotas(broker: Measured, *, by_name: bool) -> Metrics:
    """Quotas, and their use by clients."""
    manager = broker.quotas.made
    if manager is None:
        return
    if by_name:
        yield BOUND
        for number, (entity, values) in enumerate(list(manager.stored.quotas.items())):
            names = {kind.replace("-", "_"): name or "<default>" for kind, name in entity}
            for key, bound in values.items():
                yield sample(BOUND.name, bound, quota=key, **names)
            if number % ROWS_BETWEEN == 0:
                yield ""
    throttles = manager.throttles
    if throttles is None:
        return
    yield from plain(
        "kstore_throttled_connections", "gauge", "Connections that wait for their quota now",
        throttles.waiting,
    )  # fmt: skip
    yield from plain(
        "kstore_throttles_total", "counter", "Times that a client had to wait for its quota",
        throttles.throttles,
    )  # fmt: skip
    yield from plain(
        "kstore_throttle_seconds_total", "counter", "How long clients had to wait for their quota",
        throttles.throttled_ms / 1000,
    )  # fmt: skip
    if by_name:
        yield from _rates(throttles)


def _rates(throttles: ClientThrottles) -> Metrics:
    rates = throttles.rates()
    yield BYTE_RATE
    for number, (key, user, client_id, rate) in enumerate(rates):
        if key in RESOURCES:
            yield sample(
                BYTE_RATE.name, rate,
                resource=RESOURCES[key], user=user or "", clientId=client_id or "",
            )  # fmt: skip
        if number % ROWS_BETWEEN == 0:
            yield ""
    yield REQUEST_TIME
    for number, (key, user, client_id, rate) in enumerate(rates):
        if key == REQUEST_PERCENTAGE:
            yield sample(REQUEST_TIME.name, rate, user=user or "", clientId=client_id or "")
        if number % ROWS_BETWEEN == 0:
            yield ""


def of_pushes(broker: Measured, *, by_name: bool) -> Metrics:
    """The metrics that clients push, if ``by_name``, because they name the clients' topics."""
    telemetry = broker.telemetry.made
    if telemetry is None:
        return
    yield from plain(
        "kstore_client_telemetry_pushes_total", "counter", "Pushes of clients' metrics",
        telemetry.pushes,
    )  # fmt: skip
    yield from plain(
        "kstore_client_telemetry_unreadable_total", "counter", "Pushes that could not be read",
        telemetry.unreadable,
    )  # fmt: skip
    if by_name:
        yield from telemetry.metrics()
