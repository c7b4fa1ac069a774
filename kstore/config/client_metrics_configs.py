"""The table of client metrics configs (KIP-714), and the parser of a subscription's client match.

A subscription without settings pushes nothing.
"""

from __future__ import annotations

from kstore.config.definition import ConfigDef, ConfigType, Importance, between

__all__ = ["CLIENT_METRICS_CONFIGS", "MATCH_KEYS"]

# What a client can be selected by; each with a regular expression.
MATCH_KEYS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

_ROWS = (
    ConfigDef(
        "interval.ms", ConfigType.INT, 300_000,
        "How often a matching client pushes its metrics.", Importance.MEDIUM,
        between(100, 3_600_000),
    ),
    ConfigDef(
        "match", ConfigType.LIST, (),
        "Which clients match: items of the form key=pattern. Empty: all clients.",
        Importance.MEDIUM,
    ),
    ConfigDef(
        "metrics", ConfigType.LIST, (),
        "The prefixes of the metrics to push. *: all. Empty: none.",
        Importance.MEDIUM,
    ),
)  # fmt: skip

CLIENT_METRICS_CONFIGS: dict[str, ConfigDef] = {row.name: row for row in _ROWS}
