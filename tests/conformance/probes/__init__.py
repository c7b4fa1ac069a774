"""The cases that probe.py sends to both brokers, with a module for each family of APIs."""

from tests.conformance.probes import (
    admin,
    configs,
    consumer_groups,
    data,
    groups,
    streams_groups,
    topics,
    transactions,
)
from tests.conformance.probes.malformed import structures
from tests.conformance.probes.shares import stories
from tests.conformance.probes.shares import structures as share_structures
from tests.conformance.probes.story import CASES

__all__ = ["CASES"]

FAMILIES = (
    topics, configs, data, groups, consumer_groups, streams_groups, stories, share_structures,
    admin, transactions, structures,
)  # fmt: skip
"""Their stories are cases once they are imported."""
