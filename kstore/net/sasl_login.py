"""Authenticates a client on each of its connections: one SaslClient per exchange, with a valid
token. One Login serves all connections of a client.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kstore.config.client.sasl_configs import SASL_CONFIGS
from kstore.errors import KafkaError
from kstore.net.sasl_client import (
    OAUTHBEARER,
    SaslClient,
    Token,
    credentials_of,
    make_client,
    mechanism_of,
)

__all__ = ["Login"]


class Login:
    """Checks the settings (a client's, or a broker's own; missing ones have Kafka's default) at
    once and raises ConfigError. It is used on one event loop.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {row.name: row.default for row in SASL_CONFIGS} | dict(settings)
        self.user: str | None = None
        """The user of PLAIN and SCRAM; None if the token names the user."""
        self._fetch: Callable[[], Token] | None = None
        self._token: Token | None = None
        self._refresh_at_s = 0.0
        self._fetching: asyncio.Future[Token] | None = None
        if mechanism_of(self._settings) == OAUTHBEARER:
            from kstore.net.oauth_tokens import token_source  # imports an HTTP client

            self._fetch = token_source(self._settings)
        else:
            self.user = credentials_of(self._settings).user

    async def client(self) -> SaslClient:
        """A client for one exchange. Raises NetworkError or SaslAuthenticationFailedError if no
        token is available.
        """
        if self._fetch is None:
            return make_client(self._settings)
        return make_client(self._settings, await self._valid_token(self._fetch))

    async def _valid_token(self, fetch: Callable[[], Token]) -> Token:
        """The current token until it must be refreshed; if that fails, until it expires. Callers at
        the same time share the fetch.
        """
        token = self._token
        if token is not None and time.time() < self._refresh_at_s:
            return token
        if self._fetching is None:
            self._fetching = _in_thread(fetch)
            self._fetching.add_done_callback(self._fetched)
        try:
            return await asyncio.shield(self._fetching)
        except KafkaError:
            if token is None or token.expires_at_s is None or token.expires_at_s <= time.time():
                raise
            return token

    def _fetched(self, future: asyncio.Future[Token]) -> None:
        self._fetching = None
        if future.cancelled() or future.exception() is not None:
            return
        self._token = future.result()
        self._refresh_at_s = self._refresh_time(self._token.expires_at_s)

    def _refresh_time(self, expires_at_s: float | None) -> float:
        """When to refresh the token (sasl.login.refresh.*): a token without an expiry time is
        fetched again for each exchange.
        """
        if expires_at_s is None:
            return 0.0
        settings, now = self._settings, time.time()
        life_s = expires_at_s - now
        part: float = settings["sasl.login.refresh.window.factor"]
        part += random.random() * settings["sasl.login.refresh.window.jitter"]
        buffer_s = settings["sasl.login.refresh.buffer.seconds"]
        least_s = settings["sasl.login.refresh.min.period.seconds"]
        wait_s = life_s * part
        if buffer_s + least_s <= life_s:
            wait_s = max(min(wait_s, life_s - buffer_s), least_s)
        return now + min(wait_s, life_s)


def _in_thread(fetch: Callable[[], Token]) -> asyncio.Future[Token]:
    """A daemon thread: the process exits without waiting for it, however long an endpoint takes."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Token] = loop.create_future()

    def done(token: Token | None, error: Exception | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(token)  # type: ignore[arg-type]
            else:
                future.set_exception(error)

    def run() -> None:
        token, problem = None, None
        try:
            token = fetch()
        except Exception as error:  # noqa: BLE001 - the waiting callers get it
            problem = error
        try:
            loop.call_soon_threadsafe(done, token, problem)
        except RuntimeError:  # the client was closed meanwhile
            return

    threading.Thread(target=run, name="kstore-token", daemon=True).start()
    return future
