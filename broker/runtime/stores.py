"""Which coordination store a broker's settings ask for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import NodeExistsError, StoreError
from kstore.broker.runtime import znodes

if TYPE_CHECKING:
    from kstore.broker.coordination.renewable import RenewableStore
    from kstore.broker.coordination.store import Store
    from kstore.broker.state.image import BrokerImage
    from kstore.config import BrokerConfig

__all__ = ["open_own_store", "open_shared_store", "register_alone"]

RETRY_S = 0.1
EXPIRY_S = 5.0
"""How much longer than its timeout an ensemble may take to end a session."""
STORE_FOLDER = ".coordination"
"""The embedded coordination store's folder in the first log dir."""


def open_own_store(log_dir: str) -> Store:
    """The embedded store in ``log_dir``, of a broker that is alone."""
    from kstore.broker.coordination.lmdb_store import LmdbStore

    return LmdbStore(os.path.join(log_dir, STORE_FOLDER))


def register_alone(
    store: Store, broker: BrokerImage, config: BrokerConfig, report: Callable[[str], None]
) -> None:
    """Say in the store of a single broker that it is alive. Blocks, while ZooKeeper still has a
    session of this broker that was killed; StoreError where that does not end, or another is there.
    """
    others = [each for each in znodes.broker_ids(store) if each != broker.node_id]
    if others:
        raise StoreError(
            f"broker {others[0]} is registered in this coordination store: brokers can't share "
            "one yet, give this one a chroot of its own in zookeeper.connect"
        )
    timeout_ms = config["zookeeper.session.timeout.ms"]
    deadline = time.monotonic() + timeout_ms / 1000 + EXPIRY_S
    told = False
    while True:
        try:
            znodes.register_broker(store, broker, time.time_ns() // 1_000_000)
            return
        except NodeExistsError as error:
            if time.monotonic() >= deadline:
                raise StoreError(
                    f"broker {broker.node_id} is registered already, by a process that is alive: "
                    "stop it, or set another node.id"
                ) from error
        if not told:
            report(
                f"broker {broker.node_id} is still registered by a session that ended without a "
                f"word: waiting at most {timeout_ms} ms (zookeeper.session.timeout.ms)"
            )
            told = True
        time.sleep(RETRY_S)


def open_shared_store(config: BrokerConfig) -> RenewableStore:
    """The store that the brokers of a cluster share: the folder of those on one machine, or
    ZooKeeper. StoreError if it can't be had.
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
