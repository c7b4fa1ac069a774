"""The composition root: it creates all parts of a broker, and passes to each part the few others
that it needs. broker.py has what a single broker and a broker of a cluster have in common;
standalone_broker.py and cluster_broker.py have the differences. It answers no requests and makes no
decisions.

May import: kstore._fast.broker, kstore._fast.network, kstore.broker.coordination,
    kstore.broker.runtime, kstore.broker.state.metadata, kstore.broker.state.replication,
    kstore.broker.state.security, kstore.config, kstore.types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kstore.broker.compose.broker import Broker
    from kstore.broker.runtime.log_limit import Report
    from kstore.broker.runtime.request_server import RequestServer
    from kstore.config import BrokerConfig

__all__ = ["compose"]


def compose(
    config: BrokerConfig, loop: asyncio.AbstractEventLoop, server: RequestServer, report: Report
) -> Broker:
    """The broker for these settings; it opens nothing yet. See Broker."""
    if config.clustered:
        from kstore.broker.compose.cluster_broker import ClusterBroker

        return ClusterBroker(config, loop, server, report)
    from kstore.broker.compose.standalone_broker import StandaloneBroker

    return StandaloneBroker(config, loop, server, report)
