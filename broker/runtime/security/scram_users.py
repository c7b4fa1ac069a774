"""The SCRAM credentials of users as a broker of a cluster knows them: read from the store at its
start, then kept, and followed by its watch (config_watch.py). So clients log in while the store is
away, and no login waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kstore.broker.runtime.metadata import entity_configs
from kstore.broker.state.security.scram_credentials import MECHANISMS, ScramCredential

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.broker import Broker

__all__ = ["USERS", "ScramUsers", "credential_finder", "user_path"]

USERS = "/config/users"
NAMES = frozenset(mechanism.name for mechanism in MECHANISMS.values())


class ScramUsers:
    """Every user that has a credential, by the name that its node has."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_path: dict[str, Mapping[str, str]] = {}

    def load(self) -> None:
        """Read all users. Blocks; StoreError."""
        paths = [path for user, path in entity_configs.children(self._store, USERS) if user]
        found = {path: _credentials(entity_configs.read(self._store, path)) for path in paths}
        self._by_path = {path: known for path, known in found.items() if known}

    def reload(self, paths: Collection[str]) -> None:
        """Read again the users whose nodes are among these paths, or all where one is a folder.
        Blocks; StoreError.
        """
        if not all(path.startswith(f"{USERS}/") for path in paths):
            self.load()
            return
        for path in {"/".join(path.split("/", 4)[:4]) for path in paths}:
            known = _credentials(entity_configs.read(self._store, path))
            if known:
                self._by_path[path] = known
            else:
                self._by_path.pop(path, None)

    def credentials(self, user: str) -> Mapping[str, str]:
        """A user's credentials as text, by mechanism; none where there is no such user."""
        return self._by_path.get(user_path(user), {})


def user_path(user: str) -> str:
    """Where a user's node is."""
    return f"{USERS}/{entity_configs.sanitize(user)}"


def credential_finder(broker: Broker, mechanism: str) -> Callable[[str], ScramCredential | None]:
    """Who finds a user's credential: in memory in a cluster, else in this broker's own store."""

    def find(user: str) -> ScramCredential | None:
        if broker.scram is not None:
            known = broker.scram.credentials(user)
        else:
            known = entity_configs.read(broker.store, user_path(user))
        text = known.get(mechanism)
        return None if text is None else ScramCredential.parse(text)

    return find


def _credentials(config: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in config.items() if name in NAMES}
