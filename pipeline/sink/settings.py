"""The settings of a sink: its checked options, and the settings of its producers and admin
clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from kstore.config.client.configs import CLIENT_CONFIGS, ClientSettings, client_settings
from kstore.config.definition import ConfigError
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.options import check_names, client_options, text
from kstore.pipeline.sink.rows import check_schema

__all__ = ["SinkSettings", "admin_settings", "producer_settings"]

BATCH_SIZE = 512 << 10
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
_REFUSED = ("transactional.id", "key.serializer", "value.serializer", "interceptor.classes")


@dataclass(frozen=True)
class SinkSettings:
    """The options of a sink; sent to executors."""

    clients: Mapping[str, Any]
    topic: str | None
    exactly_once: bool

    @classmethod
    def of(cls, schema: StructType, options: Mapping[str, str]) -> SinkSettings:
        """Parse and check the options. Raises PipelineError."""
        check_names(options)
        clients = client_options(options)
        if not clients.get("bootstrap.servers"):
            raise PipelineError("no brokers are given", remedy="Set kafka.bootstrap.servers")
        for name in _REFUSED:
            if name in clients:
                raise PipelineError(
                    f"option kafka.{name} is not allowed for a sink", remedy="Omit it"
                )
        topic = text(options, "topic")
        check_schema(schema, topic)
        delivery = text(options, "kstore.delivery", EXACTLY_ONCE)
        if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
            raise PipelineError(
                f"option kstore.delivery is {delivery!r}",
                remedy=f"Give {EXACTLY_ONCE} or {AT_LEAST_ONCE}",
            )
        exactly_once = delivery == EXACTLY_ONCE
        if exactly_once and clients.get("acks", "all") not in ("all", "-1"):
            raise PipelineError(
                f"option kafka.acks is {clients['acks']!r}, but writing exactly once needs all",
                remedy=f"Omit it, or set kstore.delivery to {AT_LEAST_ONCE}",
            )
        settings = cls(clients, topic, exactly_once)
        _check_clients(settings)
        return settings


def _check_clients(settings: SinkSettings) -> None:
    """Check kafka.* options on the driver."""
    try:
        producer_settings(settings)
    except ConfigError as error:
        raise PipelineError(f"kafka.* options: {error}", remedy="Correct it") from None


def producer_settings(settings: SinkSettings) -> ClientSettings:
    """The user's settings for producers, with larger batches than a producer that waits for more
    records.

    Raises ConfigError.
    """
    return client_settings("producer", {"batch.size": BATCH_SIZE} | dict(settings.clients))


def admin_settings(settings: SinkSettings) -> dict[str, Any]:
    """The user's settings that admin clients also have."""
    made = producer_settings(settings)
    return {name: made[name] for name in made.given if name in CLIENT_CONFIGS["admin"]}
