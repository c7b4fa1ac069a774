"""Sessions of logged-in users, with their connections and samples. Everything is only in memory."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from kstore.console.cluster.admin import ConsoleAdmin
from kstore.console.cluster.sampler import Sampler
from kstore.console.cluster.settings import BEARER, ConsoleSettings, Login
from kstore.errors import KafkaError

__all__ = ["LoginError", "Session", "Sessions"]

IDLE_S = 1800.0
"""A session ends after so long without a request."""
LONGEST_S = 12 * 3600.0
MAX_SESSIONS = 100
FAILED_S = 1.0
"""The delay of the response to a failed login; failed logins are answered one at a time."""
CLEAN_S = 30.0
CLIENT_ID = "kstore-console"


class LoginError(Exception):
    """A failed login; the message says why."""


class Session:
    """One user's connections to the cluster, with the permissions of ``principal``."""

    def __init__(self, client: Mapping[str, Any], principal: str) -> None:
        self.key = secrets.token_urlsafe(32)
        self.csrf = secrets.token_urlsafe(32)
        self.principal = principal
        self.client = {"client.id": CLIENT_ID, **client}
        self.admin = ConsoleAdmin(self.client)
        self.sampler = Sampler(self.admin)
        self.notices: list[tuple[str, str]] = []
        """The message of the next page: (ok or error, sentence)."""
        self.began = self.used = time.monotonic()

    def touch(self) -> None:
        """A request has arrived."""
        self.used = time.monotonic()

    def is_over(self) -> bool:
        """Whether it has been unused for too long, or is too old."""
        now = time.monotonic()
        return now - self.used > IDLE_S or now - self.began > LONGEST_S

    async def close(self) -> None:
        """Close the connections."""
        await self.sampler.close()
        await self.admin.close()


class Sessions:
    """All sessions of one console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._sessions: dict[str, Session] = {}
        self._open: Session | None = None
        self._failing = asyncio.Lock()
        self._cleaning: asyncio.Task[None] | None = None

    def start(self) -> None:
        """End old sessions from now on."""
        self._cleaning = asyncio.get_running_loop().create_task(self._clean())

    async def close(self) -> None:
        """End all."""
        if self._cleaning is not None:
            self._cleaning.cancel()
            await asyncio.gather(self._cleaning, return_exceptions=True)
        gone = [*self._sessions.values(), *([self._open] if self._open else [])]
        self._sessions.clear()
        self._open = None
        for session in gone:
            await session.close()

    def find(self, key: str | None) -> Session | None:
        """The session of a cookie; without logins, the shared one."""
        if self._settings.login is Login.NONE:
            if self._open is None:
                self._open = Session(self._settings.client, _principal(self._settings.client))
            return self._open
        session = self._sessions.get(key or "")
        if session is None or session.is_over():
            return None
        session.touch()
        return session

    async def log_in(self, user: str, password: str) -> Session:
        """A new session. Raises LoginError if the cluster refuses the login, or the token is
        wrong.
        """
        try:
            session = await self._made(user, password)
        except LoginError:
            async with self._failing:
                await asyncio.sleep(FAILED_S)
            raise
        if len(self._sessions) >= MAX_SESSIONS:
            oldest = min(self._sessions.values(), key=lambda each: each.used)
            await self.log_out(oldest)
        self._sessions[session.key] = session
        return session

    async def _made(self, user: str, password: str) -> Session:
        client = self._settings.client
        if self._settings.login is Login.TOKEN:
            if not hmac.compare_digest(password.encode(), (self._settings.token or "").encode()):
                raise LoginError("this is not the console's token")
            return Session(client, _principal(client))
        by_token = BEARER in self._settings.tried and not user
        if not password or not (user or by_token):
            raise LoginError("enter a user and a password")
        refused = ""
        for mechanism in self._settings.tried:
            if by_token != (mechanism == BEARER):
                continue
            own: dict[str, Any] = {"sasl.username": user, "sasl.password": password}
            if by_token:
                own = {"oauth_cb": lambda *_: password}
            name = _subject(password) if by_token else user
            session = Session({**client, **own, "sasl.mechanism": mechanism}, f"User:{name}")
            try:
                await session.admin.describe_cluster()
            except KafkaError as error:
                await session.close()
                refused = str(error)
            else:
                return session
        raise LoginError(refused)

    async def log_out(self, session: Session) -> None:
        """End one."""
        self._sessions.pop(session.key, None)
        await session.close()

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(CLEAN_S)
            for session in [each for each in self._sessions.values() if each.is_over()]:
                await self.log_out(session)


def _subject(token: str) -> str:
    """The principal in a JWT, for display. Only the cluster verifies it."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return str(claims["sub"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return "(by token)"


def _principal(client: Mapping[str, Any]) -> str:
    """The principal of the console's own connection, if the settings contain it."""
    user = client.get("sasl.username")
    if user:
        return f"User:{user}"
    has_key = client.get("ssl.keystore.location") or client.get("ssl.keystore.certificate.chain")
    return "the console's certificate" if has_key else "User:ANONYMOUS"
