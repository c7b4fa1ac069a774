"""The delegation tokens of the cluster (KIP-48). The coordination store has them at
/delegation_token/tokens/ID. Any broker can change them there, and all others follow
(config_watch.py). All tokens are also in memory, so that clients can log in while the store is
unavailable.

state/security/delegation_tokens.py has the rules, token_nodes.py the stored form.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Sequence
from os import urandom
from typing import TYPE_CHECKING
from uuid import uuid4

from kstore.broker.coordination.store import BadVersionError, NoNodeError, StoreError
from kstore.broker.state.security.delegation_tokens import (
    DelegationToken,
    Lifetimes,
    Principal,
    TokenKeys,
    TokenRefusal,
    expire,
    hmac_of,
    new_token,
    renew,
    scram_credential,
)
from kstore.broker.state.security.scram_credentials import MECHANISMS, ScramCredential
from kstore.broker.state.security.token_nodes import (
    NONCE_BYTES,
    may_be_over,
    parse,
    resealed,
    sealed,
)
from kstore.config import ConfigError
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio

    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.node import Node

__all__ = ["TOKEN_FOLDER", "DelegationTokens"]

TOKEN_FOLDER = "/delegation_token"
TOKENS = f"{TOKEN_FOLDER}/tokens"
NOT_FOUND = TokenRefusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
Change = Callable[[DelegationToken], "DelegationToken | TokenRefusal"]


class DelegationTokens:
    """All tokens of the cluster that were created with this broker's key."""

    def __init__(self, node: Node, store: Store, sweeps: Callable[[], bool]) -> None:
        """Call `load` first to read all tokens. ``sweeps`` returns whether this broker deletes
        expired tokens now. Raises ConfigError without the library that encrypts tokens.
        """
        _need_library()
        self._node = node
        self._store = store
        self._sweeps = sweeps
        config = node.config
        self._key: bytes = config["delegation.token.secret.key"].encode()
        self._lifetimes = Lifetimes(
            config["delegation.token.max.lifetime.ms"], config["delegation.token.expiry.time.ms"]
        )
        self._interval_s = config["delegation.token.expiry.check.interval.ms"] / 1000
        # Changed only in the store's thread.
        self._by_id: dict[str, DelegationToken] = {}
        self._by_hmac: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._forgotten = 0
        """How many tokens were deleted."""
        self._timer: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.Task[None] | None = None

    def _sealed(self, token: DelegationToken) -> bytes:
        return sealed(token, self._key, urandom(NONCE_BYTES))

    # ---- requests ----

    def all(self) -> list[DelegationToken]:
        """The tokens that this broker knows, sorted by id."""
        return [token for _, token in sorted(self._by_id.items())]

    def secret(self, token: DelegationToken) -> bytes:
        """A token's HMAC."""
        return hmac_of(self._key, token.token_id)

    def keys(self, mechanism: str, token_id: str) -> TokenKeys | None:
        """The data for a login with a token. None if it does not exist or has expired. The first
        call takes milliseconds.
        """
        token = self._by_id.get(token_id)
        if token is None or token.is_over(self._node.now_ms()):
            return None
        found = self._credentials.get((token_id, mechanism))
        if found is None:
            found = scram_credential(self._key, token_id, mechanism)
            self._credentials[token_id, mechanism] = found
        return TokenKeys(token, found)

    def is_valid(self, token_id: str) -> bool:
        """Whether clients can log in with the token."""
        token = self._by_id.get(token_id)
        return token is not None and not token.is_over(self._node.now_ms())

    async def create(
        self,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        requested_ms: int,
    ) -> DelegationToken | TokenRefusal:
        """Store a new token. Raises StoreError."""
        token_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        token = new_token(
            token_id, owner, requester, renewers, self._node.now_ms(), requested_ms, self._lifetimes
        )
        if isinstance(token, TokenRefusal):
            return token
        made = token

        def run() -> None:
            self._store.create(f"{TOKENS}/{token_id}", self._sealed(made), parents=True)
            self._keep(made)

        await self._node.run_blocking(run)
        return token

    async def renew(
        self, hmac: bytes, principal: Principal, requested_ms: int
    ) -> DelegationToken | TokenRefusal:
        """Extend a token's expiry time. Raises StoreError."""
        now_ms = self._node.now_ms()
        return await self._change(
            hmac, lambda token: renew(token, principal, now_ms, requested_ms, self._lifetimes)
        )

    async def expire(
        self, hmac: bytes, principal: Principal, requested_ms: int
    ) -> DelegationToken | TokenRefusal:
        """Set a token's expiry time, or delete it if ``requested_ms`` is negative. Raises
        StoreError.
        """
        now_ms = self._node.now_ms()
        return await self._change(
            hmac,
            lambda token: expire(token, principal, now_ms, requested_ms),
            removes=requested_ms < 0,
        )

    async def _change(
        self, hmac: bytes, change: Change, *, removes: bool = False
    ) -> DelegationToken | TokenRefusal:
        def run() -> DelegationToken | TokenRefusal:
            while True:
                token_id = self._find(hmac)
                if token_id is None:
                    return NOT_FOUND
                try:
                    return self._change_in_store(token_id, change, removes=removes)
                except BadVersionError:
                    continue  # another broker was faster: start again with the current contents

        return await self._node.run_blocking(run)

    def _find(self, hmac: bytes) -> str | None:
        """The id of the token with this secret. Also finds a token that another broker has just
        created.
        """
        if hmac not in self._by_hmac:
            self._read([each for each in _ids(self._store) if each not in self._by_id])
        return self._by_hmac.get(hmac)

    def _change_in_store(
        self, token_id: str, change: Change, *, removes: bool
    ) -> DelegationToken | TokenRefusal:
        path = f"{TOKENS}/{token_id}"
        try:
            data, version = self._store.get(path)
            wanted = change(parse(token_id, data, self._key))
            if isinstance(wanted, TokenRefusal):
                return wanted
            if removes:
                self._store.delete(path, version)
                self._forget(token_id)
            else:
                self._store.set(path, self._sealed(wanted), version)
                self._keep(wanted)
        except (NoNodeError, ValueError):  # deleted by another broker, or damaged
            self._forget(token_id)
            return NOT_FOUND
        return wanted

    # ---- reading the store ----

    def load(self) -> None:
        """Read all tokens. Blocks. Raises StoreError."""
        ids = _ids(self._store)
        for gone in self._by_id.keys() - set(ids):
            self._forget(gone)
        self._read(ids)

    def reload(self, paths: Collection[str]) -> bool:
        """Read the tokens at these paths again, or all if one path is a folder. Returns whether a
        token was deleted. Blocks. Raises StoreError.
        """
        before = self._forgotten
        prefix = f"{TOKENS}/"
        if all(path.startswith(prefix) for path in paths):
            self._read([path.removeprefix(prefix) for path in paths])
        else:
            self.load()
        return self._forgotten > before

    def _read(self, ids: Sequence[str]) -> None:
        nodes = self._store.read_many([f"{TOKENS}/{each}" for each in ids])
        for token_id, node in zip(ids, nodes, strict=True):
            self._take(token_id, None if node is None else node[0])

    def _take(self, token_id: str, data: bytes | None) -> None:
        if data is None:
            self._forget(token_id)
            return
        try:
            self._keep(parse(token_id, data, self._key))
        except ValueError as problem:
            self._forget(token_id)
            self._node.report(
                f"the delegation token {token_id[:40]!r} in the store is not valid: {problem}"
            )

    def _keep(self, token: DelegationToken) -> None:
        self._by_id[token.token_id] = token
        self._by_hmac[self.secret(token)] = token.token_id

    def _forget(self, token_id: str) -> None:
        if self._by_id.pop(token_id, None) is not None:
            self._forgotten += 1
        self._by_hmac.pop(hmac_of(self._key, token_id), None)
        for mechanism in MECHANISMS.values():
            self._credentials.pop((token_id, mechanism.name), None)

    # ---- expired ones ----

    def start(self) -> None:
        """Delete expired tokens from now on, every `delegation.token.expiry.check.interval.ms`."""
        self._timer = self._node.loop.call_later(self._interval_s, self._sweep_later)

    def close(self) -> None:
        """Stop deleting."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep_later(self) -> None:
        if self._sweeps():
            self._sweeping = self._node.loop.create_task(self.sweep())
        self.start()

    async def sweep(self) -> None:
        """Delete expired tokens from the store, and encrypt tokens that earlier versions of kstore
        have stored.
        """
        now_ms = self._node.now_ms()

        def run() -> None:
            ids = _ids(self._store)
            nodes = self._store.read_many([f"{TOKENS}/{each}" for each in ids])
            for token_id, node in zip(ids, nodes, strict=True):
                if node is not None:
                    self._sweep_one(token_id, node[0], node[1].version, now_ms)

        try:
            await self._node.run_blocking(run)
        except StoreError as problem:
            self._node.report(f"expired delegation tokens are not removed yet: {problem}")

    def _sweep_one(self, token_id: str, data: bytes, version: int, now_ms: int) -> None:
        path = f"{TOKENS}/{token_id}"
        try:
            if may_be_over(data, now_ms):
                self._store.delete(path, version)
                self._forget(token_id)
                return
            newer = resealed(token_id, data, self._key, urandom(NONCE_BYTES))
            if newer is not None:
                self._store.set(path, newer, version)
        except (NoNodeError, BadVersionError):
            return  # renewed or deleted meanwhile


def _need_library() -> None:
    try:
        import cryptography  # noqa: F401 - whether it is there
    except ImportError:
        raise ConfigError(
            "delegation tokens are encrypted with a library: pip install 'kstore[tls]'",
            key="delegation.token.secret.key",
        ) from None


def _ids(store: Store) -> list[str]:
    try:
        return store.children(TOKENS)
    except NoNodeError:
        return []
