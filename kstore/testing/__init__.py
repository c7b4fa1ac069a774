"""kstore in tests: brokers in separate processes, faults, and fixtures for pytest.

`kstore.testing.plugin` is the pytest plugin. Broker, Cluster and Faults can also be used without
pytest. A name's module is imported when the name is first used.

May import: kstore.broker_process, kstore.clients, kstore.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Broker", "BrokerError", "Cluster", "Fault", "Faults"]

if TYPE_CHECKING:
    from kstore.testing.brokers import Broker, BrokerError, Cluster
    from kstore.testing.faults import Fault, Faults


def __getattr__(name: str) -> Any:
    """Import a class on first use."""
    if name in {"Broker", "BrokerError", "Cluster"}:
        from kstore.testing import brokers

        return getattr(brokers, name)
    if name in {"Fault", "Faults"}:
        from kstore.testing import faults

        return getattr(faults, name)
    raise AttributeError(f"module 'kstore.testing' has no attribute {name!r}")
