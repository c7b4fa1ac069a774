"""The quotas of users, client ids and addresses, which the coordination store has, and their
changes.

Callbacks are called after every change. The rules are in state/quotas/client_quotas.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import BadPathError
from kstore.broker.runtime.metadata import entity_configs
from kstore.broker.state.quotas.client_quotas import (
    CLIENT_ID,
    IP,
    QUOTA_KEYS,
    USER,
    Alteration,
    Entity,
    QuotaError,
    check_entity,
    check_value,
    entity_of,
)

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = ["ClientQuotas"]

FOLDERS = {USER: "/config/users", CLIENT_ID: "/config/clients", IP: "/config/ips"}


class ClientQuotas:
    """Every quota of the cluster, read once and then cached."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._quotas: dict[Entity, dict[str, float]] = {}
        self._on_change: list[Callable[[], None]] = []
        self.reload()

    def reload(self) -> None:
        """Read all quotas again, since another broker may have changed some. Blocks."""
        found = {}
        for entity, path in _entities(self._store):
            quotas = _parse(entity_configs.read(self._store, path))
            if quotas:
                found[entity] = quotas
        self._quotas = found

    @property
    def quotas(self) -> Mapping[Entity, Mapping[str, float]]:
        """Entity to its quotas. Entities without quotas are left out."""
        return self._quotas

    def on_change(self, callback: Callable[[], None]) -> None:
        """Add a callback for every change."""
        self._on_change.append(callback)

    def alter(
        self,
        entity: Entity,
        alterations: Sequence[Alteration],
        is_host: Callable[[str], bool],
        *,
        validate_only: bool,
    ) -> None:
        """Set and remove quotas of one entity, all or none. Blocks. Raises QuotaError."""
        if len({change.key for change in alterations}) < len(alterations):
            raise QuotaError(f"A quota of {dict(entity)} is altered twice; alter each once.")
        keys = check_entity(entity)
        address = dict(entity).get(IP)
        if address is not None and not is_host(address):
            raise QuotaError(f"'{address}' is neither an address nor a name that resolves to one.")
        for change in alterations:
            if change.value is not None:
                check_value(keys, change.key, change.value)
        if validate_only:
            return
        texts = {
            change.key: None if change.value is None else _text(change.value)
            for change in alterations
            if change.key in QUOTA_KEYS
        }
        if texts:
            path = _path(entity)
            try:
                entity_configs.alter(self._store, path, texts)
            except BadPathError as problem:
                raise QuotaError(f"{entity} can't be stored: {problem}") from None
            quotas = _parse(entity_configs.read(self._store, path))
            self._replace(entity, quotas)

    def _replace(self, entity: Entity, quotas: dict[str, float]) -> None:
        """Replace the map instead of changing it, since the loop may be reading it."""
        changed = {**self._quotas, entity: quotas}
        if not quotas:
            del changed[entity]
        self._quotas = changed

    def notify(self) -> None:
        """Call the callbacks, on the loop."""
        for callback in self._on_change:
            callback()


def _path(entity: Entity) -> str:
    names = {kind: entity_configs.sanitize(name) for kind, name in entity}
    if USER in names and CLIENT_ID in names:
        return f"{FOLDERS[USER]}/{names[USER]}/clients/{names[CLIENT_ID]}"
    [(kind, part)] = names.items()
    return f"{FOLDERS[kind]}/{part}"


def _entities(store: Store) -> Iterator[tuple[Entity, str]]:
    """All entities in the store, with their paths."""
    for kind, folder in FOLDERS.items():
        for name, path in entity_configs.children(store, folder):
            yield entity_of([(kind, name)]), path
            if kind == USER:
                for client, below in entity_configs.children(store, f"{path}/clients"):
                    yield entity_of([(USER, name), (CLIENT_ID, client)]), below


def _parse(config: Mapping[str, str]) -> dict[str, float]:
    return {key: float(text) for key, text in config.items() if key in QUOTA_KEYS}


def _text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
