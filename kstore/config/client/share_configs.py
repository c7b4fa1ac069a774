"""Settings of share consumers with Kafka's names (ShareConsumerConfig): the consumer settings that
apply to a share group, and two more.
"""

from __future__ import annotations

from kstore.config.client.consumer_configs import CONSUMER_CONFIGS
from kstore.config.definition import ConfigDef, ConfigType, Importance, one_of

__all__ = ["SHARE_CONFIGS"]

_SHARED = {
    "check.crcs", "client.rack", "connections.max.idle.ms", "consumer.timeout.ms",
    "default.api.timeout.ms", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.id", "key.deserializer", "max.poll.interval.ms", "max.poll.records",
    "value.deserializer",
}  # fmt: skip
SHARE_CONFIGS = (
    *(row for row in CONSUMER_CONFIGS if row.name in _SHARED),
    ConfigDef(
        "share.acknowledgement.mode", ConfigType.STRING, "implicit",
        "implicit: each poll accepts the records of the one before. explicit: the user "
        "acknowledges each record.",
        Importance.MEDIUM, one_of("implicit", "explicit", any_case=True),
    ),
    ConfigDef(
        "share.acquire.mode", ConfigType.STRING, "batch_optimized",
        "batch_optimized: brokers return whole batches, so more than max.poll.records may be "
        "acquired. record_limit: no more than max.poll.records (KIP-1206).",
        Importance.MEDIUM, one_of("batch_optimized", "record_limit", any_case=True),
    ),
)  # fmt: skip
