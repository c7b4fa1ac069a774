"""Which connections count as brokers', with a listener of their own and without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.api import RequestContext
from kstore.broker.api.controller.between_brokers import between_brokers, may_name
from kstore.broker.state.security.authorizer import Authorizer
from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.controller.broker_requests import AlterPartitionRequest

ANONYMOUS = "User:ANONYMOUS"
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def broker(
    *listeners: str, own: str | None = ANONYMOUS, supers: tuple[str, ...] | None = ()
) -> Any:
    """With these listeners, the first for brokers; ``supers``: None for no authorizer."""
    named = [SimpleNamespace(name=name) for name in listeners]
    return SimpleNamespace(
        node=SimpleNamespace(
            config=SimpleNamespace(listeners=named, inter_broker_listener=named[0]),
            report=lambda sentence, about: None,
        ),
        authorizer=None if supers is None else Authorizer(supers),
        security=None if own == ANONYMOUS else SimpleNamespace(own_principal=own),
    )


def asked(of: Any, principal: str, listener: str = "A") -> Any:
    """What the handler, or else the check, answers."""
    ctx = RequestContext(56, 3, 1, "broker-2", "1.2.3.4", "peer", listener, principal)
    answer = between_brokers(lambda *_: "served")(of, AlterPartitionRequest(), ctx)
    return answer if answer == "served" else answer.error_code


def named(of: Any, principal: str, other: str) -> bool:
    ctx = RequestContext(58, 0, 1, "broker-2", "1.2.3.4", "peer", "A", principal)
    return may_name(of, ctx, other)


@pytest.mark.parametrize("supers", [None, (), ("User:eve",)])
def test_at_any_other_listener_the_connection_ends(supers: Any) -> None:
    with pytest.raises(ProtocolError, match="User:eve sent AlterPartition to the listener B"):
        asked(broker("A", "B", supers=supers), "User:eve", "B")


@pytest.mark.parametrize(
    ("of", "principal", "answer", "names_others"),
    [
        # Without an authorizer everybody may do everything.
        (broker("A", supers=None), ANONYMOUS, "served", True),
        (broker("A", own="User:b", supers=None), "User:eve", "served", True),
        # A listener for brokers only: CLUSTER_ACTION is enough, which other listeners require.
        (broker("A", "B", own="User:b"), "User:b2", "served", True),
        (broker("A", "B"), ANONYMOUS, "served", True),
        # One listener for all: the brokers' name, or a super user's.
        (broker("A", own="User:b"), "User:b", "served", True),
        (broker("A", own="User:b"), "User:eve", REFUSED, False),
        (broker("A", own="User:b", supers=("User:c",)), "User:c", "served", True),
        (broker("A", own=None, supers=("User:c",)), "User:b", REFUSED, False),
        # One listener without authentication: all connections may act as brokers, and name only
        # themselves.
        (broker("A"), ANONYMOUS, "served", False),
        (broker("A", supers=(ANONYMOUS,)), ANONYMOUS, "served", True),
    ],
)
def test_who_is_a_broker(of: Any, principal: str, answer: Any, names_others: bool) -> None:
    assert asked(of, principal) == answer
    assert named(of, principal, "User:admin") is names_others
    assert named(of, principal, principal)
