"""What a member of a cluster does not need to start, but soon: a thread imports it once the broker
is ready. On the loop it would hold the first replica, or an election, which clients wait for.
"""

from __future__ import annotations

from importlib import import_module

__all__ = ["SOON_NEEDED", "import_soon_needed"]

SOON_NEEDED = (
    "kstore.errors.group_errors",
    "kstore.broker.runtime.controller.controller",
    "kstore.broker.runtime.peers.peers",
    "kstore.broker.runtime.replication.fetchers",
    "kstore.broker.runtime.replication.replica_throttles",
    "encodings.idna",  # to connect to another broker by its name
)


def import_soon_needed() -> None:
    """Import all of it."""
    for name in SOON_NEEDED:
        import_module(name)
