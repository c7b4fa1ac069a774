"""JoinGroup and SyncGroup wait for others: the right is checked again before the answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.acls import Acl, AclOperation, AclPermission, AclResourceType
from kstore.broker.api import RequestContext
from kstore.broker.api.security.permissions import guarded
from kstore.broker.state.security.authorizer import Authorizer
from kstore.errors import ErrorCode
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message
from tests.reference.acl_rules import load

RIGHT = Acl(AclResourceType.GROUP, "g", "User:alice", AclOperation.READ, AclPermission.ALLOW)


@pytest.mark.parametrize("key", [11, 14])
@pytest.mark.parametrize("keeps_right", [True, False])
def test_an_answer_that_waited_needs_the_right_still(key: int, keeps_right: bool) -> None:
    api = APIS[key]
    good = api.response()

    async def run() -> Any:
        authorizer = Authorizer([])
        load(authorizer, [RIGHT])
        broker: Any = SimpleNamespace(authorizer=authorizer)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        connection = SimpleNamespace(principal="User:alice", client_host="h")
        ctx = RequestContext(
            key, api.max_version, 1, "me", "h", "peer", "L", "User:alice",
            connection,  # type: ignore[arg-type]
        )  # fmt: skip
        handle = guarded(key, lambda *_: answer)  # type: ignore[arg-type]
        later = asyncio.ensure_future(handle(broker, api.request(group_id="g"), ctx))
        await asyncio.sleep(0)
        if not keeps_right:
            load(authorizer, [])
        answer.set_result(good)
        return await later

    response = asyncio.run(run())
    assert (response is good) == keeps_right
    expected = ErrorCode.NONE if keeps_right else ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert response.error_code == expected


def test_an_answer_that_is_there_at_once_is_given_at_once() -> None:
    authorizer = Authorizer([])
    load(authorizer, [RIGHT])
    broker: Any = SimpleNamespace(authorizer=authorizer)
    good = APIS[11].response()
    ctx = RequestContext(
        11, 9, 1, "me", "h", "peer", "L", "User:alice", SimpleNamespace(),  # type: ignore[arg-type]
    )  # fmt: skip
    handle = guarded(11, lambda *_: good)  # type: ignore[arg-type]
    assert handle(broker, APIS[11].request(group_id="g"), ctx) is good
