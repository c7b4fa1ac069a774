"""The SCRAM credentials of users. A broker of a cluster reads them from the store at its start,
caches them, and follows changes (config_watch.py). So clients can log in while the store is
unavailable, and no login waits for the store. A single broker reads its own store at each login.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from kstore.broker.runtime.metadata import entity_configs
from kstore.broker.state.security.scram_credentials import MECHANISMS, ScramCredential

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.security.delegation_tokens import DelegationTokens

__all__ = ["USERS", "ClusterScramUsers", "ScramUsers", "StoredScramUsers", "find", "user_path"]

USERS = "/config/users"
NAMES = frozenset(mechanism.name for mechanism in MECHANISMS.values())


class ScramUsers(Protocol):
    """The source of users' credentials."""

    in_memory: bool
    """Whether `credentials` never blocks."""

    @property
    def tokens(self) -> DelegationTokens | None:
        """The delegation tokens, or None if there are none."""

    def reload(self, paths: Collection[str]) -> None:
        """Read the users at these paths again, or all if one path is a folder. Blocks. Raises
        StoreError.
        """

    def credentials(self, user: str) -> Mapping[str, str]:
        """A user's credentials as text, by mechanism. Empty if there is no such user."""


class StoredScramUsers:
    """The credentials of a single broker, in its own store."""

    in_memory = False

    def __init__(self, store: Store, tokens: DelegationTokens | None = None) -> None:
        self._store = store
        self.tokens = tokens

    def reload(self, paths: Collection[str]) -> None:
        """Does nothing: no credentials are cached."""

    def credentials(self, user: str) -> Mapping[str, str]:
        """See ScramUsers. Blocks. Raises StoreError."""
        return entity_configs.read(self._store, user_path(user))


class ClusterScramUsers:
    """All users of a cluster that have a credential."""

    in_memory = True

    def __init__(self, store: Store, tokens: DelegationTokens | None = None) -> None:
        """Call `load` to read all users before the first login."""
        self._store = store
        self.tokens = tokens
        self._by_path: dict[str, Mapping[str, str]] = {}

    def load(self) -> None:
        """Read all users. Blocks. Raises StoreError."""
        paths = [path for user, path in entity_configs.children(self._store, USERS) if user]
        found = {path: _credentials(entity_configs.read(self._store, path)) for path in paths}
        self._by_path = {path: known for path, known in found.items() if known}

    def reload(self, paths: Collection[str]) -> None:
        """As in `ScramUsers`."""
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
        """As in `ScramUsers`."""
        return self._by_path.get(user_path(user), {})


def user_path(user: str) -> str:
    """The path of a user's node."""
    return f"{USERS}/{entity_configs.sanitize(user)}"


def find(users: ScramUsers, mechanism: str, user: str) -> ScramCredential | None:
    """A user's credential for a mechanism, or None. Blocks unless ``users.in_memory``."""
    text = users.credentials(user).get(mechanism)
    return None if text is None else ScramCredential.parse(text)


def _credentials(config: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in config.items() if name in NAMES}
