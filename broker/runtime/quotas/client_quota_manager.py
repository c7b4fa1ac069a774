"""The quotas of clients, and the part that applies them. When quotas change, each connection is
notified whether there are any.

In a cluster without quotas, a broker does not create this. client_throttles.py computes throttle
times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.runtime.quotas.client_quotas import ClientQuotas
from kstore.broker.runtime.quotas.client_throttles import KEYS, ClientThrottles
from kstore.broker.state.quotas.client_quotas import IP

if TYPE_CHECKING:
    from kstore._fast.network.data_plane import DataPlane
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.security.authorizer import Authorizer

__all__ = ["ClientQuotaManager"]


class ClientQuotaManager:
    """The quotas of one broker. The constructor reads the store: it blocks, and raises
    StoreError.
    """

    def __init__(
        self,
        node: Node,
        store: Store,
        plane: DataPlane,
        metadata: MetadataCache,
        authorizer: Authorizer | None,
    ) -> None:
        self._node = node
        self._plane = plane
        self._metadata = metadata
        self._authorizer = authorizer
        self.stored = ClientQuotas(store)
        self.throttles: ClientThrottles | None = None
        """Applies the quotas. None while no user and no client id has a quota."""
        self.stored.on_change(self._act)
        self._act()

    def _act(self) -> None:
        """Notify every connection whether there are quotas."""
        wanted = any(
            key in KEYS
            for entity, values in self.stored.quotas.items()
            if entity[0][0] != IP
            for key in values
        )
        if not wanted:
            self.throttles = None
        elif self.throttles is None:
            self.throttles = ClientThrottles(
                self._node, self._metadata, self._authorizer, self.stored,
                self._plane.fetch.peer_listener,
            )  # fmt: skip
        else:
            self.throttles.forget_bounds()
        for connection in self._plane.open_connections():
            connection.quotas = self.throttles
