"""A broker with an authorizer, and users with one right each. A connection that is named after a
user authenticates as that user (SASL PLAIN). All other connections belong to the super user, who
needs no password.

This module has no expectations: the answers are compared elsewhere.
"""

from __future__ import annotations

import socket
from typing import Any

from kstore.protocol.registry import decode_response, encode_request
from kstore.protocol.security.acls import AclCreation, CreateAclsRequest
from kstore.protocol.security.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.conformance import wire
from tests.conformance.probes.peer import PATIENCE_S, Peer
from tests.conformance.sasl_listeners import STANDARD_AUTHORIZER, add_plain_listener

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED, ALLOW = 3, 4, 3
RESOURCES = {"topic": TOPIC, "group": GROUP, "cluster": CLUSTER, "txn": TRANSACTIONAL_ID}
OPERATIONS = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8,
    "act": 9, "show": 10, "set": 11, "idempotent": 12, "commit": 15,
}  # fmt: skip
"""Kafka's numbers; act = CLUSTER_ACTION, show = DESCRIBE_CONFIGS, set = ALTER_CONFIGS,
idempotent = IDEMPOTENT_WRITE, commit = TWO_PHASE_COMMIT."""
_SINGLE = {
    "topic": "read write create delete alter describe show set",
    "group": "read delete describe show set",
    "cluster": "create act show set idempotent alter describe",
    "txn": "describe write commit",
}
_TOGETHER = (
    "group_read topic_read", "group_read topic_describe", "group_read topic_describe topic_create",
    "group_describe topic_describe", "group_delete topic_read", "group_delete topic_describe",
    "txn_write topic_write", "txn_write group_read", "txn_write group_read topic_read",
    "txn_write cluster_idempotent", "txn_write txn_commit", "txn_describe topic_describe",
    "topic_create topic_show", "topic_delete topic_describe", "cluster_create topic_show",
    "cluster_describe topic_describe", "cluster_alter topic_describe",
)  # fmt: skip
RIGHTS: tuple[str, ...] = (
    "nobody",
    *(f"{kind}_{word}" for kind, words in _SINGLE.items() for word in words.split()),
    *_TOGETHER,
)
"""What the users have, each on all resources of the kind; a user is named so, with "__" between."""
HALF = "half"
"""It may do everything with resources named mine-..., and nothing else."""
USERS = (*(rights.replace(" ", "__") for rights in RIGHTS), HALF)
REFUSED_MOSTLY = (
    "nobody",
    "group_read",
    "txn_write",
    "txn_write__group_read",
    "group_describe",
    HALF,
)
"""Users that show the different forms of refusals."""
PASSWORD = "password-of-the-probe"


def secure(broker: Any) -> int:
    """Add the users to a broker that is not started, with a separate listener; returns the port of
    that listener. Clients of the other listener are the super user.
    """
    broker.overrides |= {
        "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS",
    }  # fmt: skip
    address = add_plain_listener(broker, dict.fromkeys(USERS, PASSWORD))
    return int(address.rpartition(":")[2])


class SecuredPeer(Peer):
    """The same broker with two listeners."""

    def __init__(self, name: str, host: str, port: int, secured_port: int) -> None:
        self.secured = (host, secured_port)
        super().__init__(name, host, port)

    def twin(self) -> SecuredPeer:
        """The same broker with separate connections for another thread."""
        return SecuredPeer(self.name, *self.address, self.secured[1])

    def connect(self, on: str = "") -> socket.socket:
        """The open connection of that name, or a new authenticated one."""
        if on in USERS and on not in self._sockets:
            made = socket.create_connection(self.secured, timeout=PATIENCE_S)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                _authenticate(made, on)
            except BaseException:
                made.close()
                raise
            self._sockets[on] = made
        return super().connect(on)


def _authenticate(connection: socket.socket, user: str) -> None:
    frame = encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "probe")
    _, hand = decode_response(wire.exchange(connection, frame), SaslHandshakeResponse, 1)
    token = f"\0{user}\0{PASSWORD}".encode()
    frame = encode_request(SaslAuthenticateRequest(auth_bytes=token), 2, 2, "probe")
    _, done = decode_response(wire.exchange(connection, frame), SaslAuthenticateResponse, 2)
    if hand.error_code or done.error_code:
        raise wire.WireError(f"{user} was not let in: {hand.error_code} {done.error_message}")


def grant(peer: Peer) -> None:
    """Give the users the rights that their names say."""
    rows = []
    for user in USERS:
        for right in user.split("__"):
            kind, _, word = right.partition("_")
            if word:
                name = "kafka-cluster" if kind == "cluster" else "*"
                rows.append(_rule(user, RESOURCES[kind], name, OPERATIONS[word]))
    for kind in ("topic", "group", "txn"):
        rows.append(_rule(HALF, RESOURCES[kind], "mine-", OPERATIONS["all"], PREFIXED))
    answer = peer.ask(CreateAclsRequest(creations=rows), 3)
    codes = {row.error_code for row in answer.results}  # type: ignore[attr-defined]
    if codes != {0}:
        raise AssertionError(f"CreateAcls was answered with errors {codes}")


def _rule(
    user: str, resource: int, name: str, operation: int, pattern: int = LITERAL
) -> AclCreation:
    return AclCreation(
        resource_type=resource, resource_name=name, resource_pattern_type=pattern,
        principal=f"User:{user}", host="*", operation=operation, permission_type=ALLOW,
    )  # fmt: skip
