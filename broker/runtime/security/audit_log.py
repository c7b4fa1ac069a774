"""Logs denied operations to the logger kstore.authorizer, as Kafka does to kafka.authorizer.logger.
Allowed operations are not logged, and cost nothing.

Clients can cause as many denials as they like, so the log is limited and not complete. In each
window of time it has the first denial of a kind, a few kinds for each principal, and how many more
there were.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from kstore.acls import AclOperation, AclResourceType, operation_name
from kstore.broker.runtime.log_limit import WINDOW_S, LogLimit
from kstore.protocol.registry import APIS

if TYPE_CHECKING:
    import asyncio

    from kstore.broker.state.security.authorizer import Authorizer

__all__ = ["HTTP_REQUEST", "AuditLog"]

LOGGER = logging.getLogger("kstore.authorizer")
HTTP_REQUEST = -1
"""Stands for the API key of a request over HTTP."""
MAX_KINDS_OF_ONE = 10
"""Denials of one principal that are logged individually in a window."""
MAX_KINDS = 100
"""The same for all principals."""
MAX_SHOWN_CHARS = 300
"""The limit of a name's length: clients choose them."""


class AuditLog:
    """The audit log of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._limit = LogLimit(loop, _report_rest, of_group=MAX_KINDS_OF_ONE, of_all=MAX_KINDS)
        """The log limit. Its groups are principals."""

    def denied(
        self, principal: str, host: str, operation: int, resource_type: int, name: str, api_key: int
    ) -> None:
        """Log a denial, unless the limit is reached."""
        if not LOGGER.isEnabledFor(logging.INFO):
            return
        # Only the visible part of a name is stored.
        kind = (host, operation, resource_type, name[:MAX_SHOWN_CHARS], len(name), api_key)
        if not self._limit.admits(principal, kind):
            return
        kind_of = AclResourceType(resource_type)
        rule = self._authorizer.denying(principal, host, operation, resource_type, name)
        LOGGER.info(
            "authorizer: denied principal=%s host=%s request=%s operation=%s resource=%s:%s"
            " rule=%s",
            _quoted(principal), _quoted(host),
            _request(api_key),
            operation_name(AclOperation(operation), kind_of), kind_of.name, _quoted(name),
            "none" if rule is None else _quoted(str(rule)),
        )  # fmt: skip


def _report_rest(principal: str, count: int) -> None:
    if principal:
        LOGGER.info(
            "authorizer: denied principal=%s more=%d, in the last %d seconds",
            _quoted(principal), count, WINDOW_S,
        )  # fmt: skip
    else:
        LOGGER.info(
            "authorizer: denied to other principals more=%d, in the last %d seconds",
            count, WINDOW_S,
        )  # fmt: skip


def _request(api_key: int) -> str:
    if api_key == HTTP_REQUEST:
        return "HTTP"
    return APIS[api_key].name if api_key in APIS else str(api_key)


def _quoted(text: str) -> str:
    """A quoted name, in ASCII, without control characters, and truncated if it is too long."""
    if len(text) <= MAX_SHOWN_CHARS:
        return json.dumps(text)
    return f"{json.dumps(text[:MAX_SHOWN_CHARS])}...{len(text)}"
