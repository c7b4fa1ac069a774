"""kstore in tests: brokers in processes of their own, faults in them, and fixtures for pytest.

`kstore.testing.plugin` is pytest's; Broker, Cluster and Faults work without it too. Nothing is
imported before it is asked for.

May import: kstore.broker_process, kstore.clients, kstore.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Broker", "BrokerError", "Cluster", "Fault", "Faults"]

if TYPE_CHECKING:
    from kstore.testing.brokers import Broker, BrokerError, Cluster
    from kstore.testing.faults import Fault, Faults


def __getattr__(name: str) -> Any:
    """Import a class when it is asked for."""
    if name in {"Broker", "BrokerError", "Cluster"}:
        from kstore.testing import brokers

        return getattr(brokers, name)
    if name in {"Fault", "Faults"}:
        from kstore.testing import faults

        return getattr(faults, name)
    raise AttributeError(f"module 'kstore.testing' has no attribute {name!r}")
