"""Opens the coordination store that a broker's settings specify."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import StoreError

if TYPE_CHECKING:
    from kstore.broker.coordination.renewable import RenewableStore
    from kstore.broker.coordination.store import Store
    from kstore.config import BrokerConfig

__all__ = ["open_own_store", "open_shared_store"]

STORE_FOLDER = ".coordination"
"""The embedded coordination store's folder in the first log dir."""


def open_own_store(log_dir: str) -> Store:
    """The embedded store in ``log_dir``, for a single broker."""
    from kstore.broker.coordination.lmdb_store import LmdbStore

    return LmdbStore(os.path.join(log_dir, STORE_FOLDER))


def open_shared_store(config: BrokerConfig) -> RenewableStore:
    """The store that the brokers of a cluster share: LMDB in a folder, if all are on one machine,
    or ZooKeeper. Raises StoreError if it is unavailable.
    """
    from kstore.broker.coordination.renewable import RenewableStore

    return RenewableStore(lambda: _open_session(config))


def _open_session(config: BrokerConfig) -> Store:
    folder = config["kstore.coordination.dir"]
    if folder:
        from kstore.broker.coordination.lmdb_store import LmdbStore

        return LmdbStore(
            folder,
            shared=True,
            session_timeout_ms=config["kstore.coordination.session.timeout.ms"],
            stall_timeout_ms=config["kstore.coordination.stall.timeout.ms"],
        )
    try:
        from kstore.broker.coordination.zookeeper_store import ZooKeeperStore
    except ImportError as error:
        raise StoreError(
            "zookeeper.connect is set, but kazoo is not installed: pip install 'kstore[zookeeper]'"
        ) from error
    return ZooKeeperStore(
        config["zookeeper.connect"],
        session_timeout_ms=config["zookeeper.session.timeout.ms"],
        connection_timeout_ms=config["zookeeper.connection.timeout.ms"],
    )
