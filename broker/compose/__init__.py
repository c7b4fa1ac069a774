"""Puts a broker together: the alone or the clustered form."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kstore.broker.runtime.broker import Broker
    from kstore.broker.runtime.log_limit import Report
    from kstore.broker.runtime.request_server import RequestServer
    from kstore.config import BrokerConfig

__all__ = ["compose"]


def compose(
    config: BrokerConfig, loop: asyncio.AbstractEventLoop, server: RequestServer, report: Report
) -> Broker:
    """The broker that the settings want; it opens nothing yet. See Broker."""
    if config.clustered:
        from kstore.broker.runtime.cluster_broker import ClusterBroker

        return ClusterBroker(config, loop, server, report)
    from kstore.broker.runtime.alone_broker import AloneBroker

    return AloneBroker(config, loop, server, report)
