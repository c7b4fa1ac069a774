"""broker/runtime/quotas/client_throttles.py: which quota applies to which client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.acls import Acl, AclOperation, AclPermission, AclResourceType
from kstore.broker.runtime.quotas import client_throttles
from kstore.broker.runtime.quotas.client_throttles import ClientThrottles
from kstore.broker.state.security.authorizer import Authorizer
from kstore.protocol.shares.fetch import ShareFetchResponse
from tests.reference.acl_rules import load

FETCH = 1
RATE = "consumer_byte_rate"


def throttles(quotas: dict[Any, float], authorizer: Authorizer | None = None) -> ClientThrottles:
    loop = SimpleNamespace(time=lambda: 100.0, call_later=lambda *call: None)
    config = {"quota.window.num": 11, "quota.window.size.seconds": 1}
    node: Any = SimpleNamespace(loop=loop, config=config)
    metadata: Any = SimpleNamespace(image=SimpleNamespace(brokers={1: None, 2: None}))
    rows: Any = SimpleNamespace(quotas={entity: {RATE: rate} for entity, rate in quotas.items()})
    return ClientThrottles(node, metadata, authorizer, rows, "INTERNAL")


def connection(user: str, client_id: str, listener: str = "CLIENTS") -> Any:
    return Connection(f"User:{user}", client_id.encode(), listener)


class Connection:
    """What the throttles need from a connection."""

    client_host = "10.0.0.1"

    def __init__(self, principal: str, client_id: bytes, listener: str) -> None:
        self.principal, self.client_id, self.listener = principal, client_id, listener

    def unmute(self) -> None:
        """No client waits here."""


EVERYBODY = {(("client-id", None),): 1.0}


@pytest.mark.parametrize(
    ("client_id", "held"),
    [
        ("broker-2", False),
        ("broker-2-fetcher", False),
        ("broker-7-fetcher", True),  # there is no such broker
        ("broker-2-fetcher-too", True),
        ("somebody", True),
        ("", True),
    ],
)
def test_brokers_of_the_cluster_are_no_clients_with_quotas(client_id: str, held: bool) -> None:
    peer = connection("ANONYMOUS", client_id, "INTERNAL")
    assert (throttles(EVERYBODY).charge(peer, FETCH, 1_000_000) > 0) == held


def test_who_calls_itself_a_broker_on_another_listener_is_held() -> None:
    assert throttles(EVERYBODY).charge(connection("x", "broker-2"), FETCH, 1_000_000) > 0


def test_with_an_authorizer_only_who_has_the_brokers_right_is_one() -> None:
    right = Acl(
        AclResourceType.CLUSTER, "kafka-cluster", "User:broker", AclOperation.CLUSTER_ACTION,
        AclPermission.ALLOW,
    )  # fmt: skip
    authorizer = Authorizer()
    load(authorizer, [right])
    held = throttles(EVERYBODY, authorizer)
    assert held.charge(connection("broker", "broker-2", "INTERNAL"), FETCH, 1_000_000) == 0
    assert held.charge(connection("mallory", "broker-2", "INTERNAL"), FETCH, 1_000_000) > 0


USER_AND_CLIENT = (("client-id", "c"), ("user", "u"))
ORDER: list[Any] = [
    USER_AND_CLIENT,
    (("client-id", None), ("user", "u")),
    (("user", "u"),),
    (("client-id", "c"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", "c"),),
    (("client-id", None),),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_quota_holds(first: int) -> None:
    """The order is that of KIP-55: a large quota on the first alone allows everything."""
    quotas = dict.fromkeys(ORDER[first:], 1.0) | {ORDER[first]: 1e12}
    assert throttles(quotas).charge(connection("u", "c"), FETCH, 1_000_000) == 0


def used_by_others(entity: Any, user: str, client_id: str) -> bool:
    """Whether this client waits after client c of user u has used up the entity's quota."""
    held = throttles({entity: 1000.0})
    assert held.charge(connection("u", "c"), FETCH, 1_000_000) > 0
    return held.charge(connection(user, client_id), FETCH, 1) > 0


def test_a_fetch_is_bounded_by_the_quota_of_a_whole_window() -> None:
    held = throttles({(("user", "u"),): 1000.0, (("user", "v"),): 1e18})
    assert held.fetch_bytes(connection("u", "c")) == 10_000
    assert held.fetch_bytes(connection("v", "c")) == 2**31 - 1
    assert held.fetch_bytes(connection("w", "c")) == 2**31 - 1


@pytest.mark.parametrize(
    ("entity", "shared_by_clients", "shared_by_users"),
    [
        ((("user", "u"),), True, False),
        ((("user", None),), True, False),
        ((("client-id", "c"),), False, True),
        ((("client-id", None),), False, True),
        (USER_AND_CLIENT, False, False),
        ((("client-id", None), ("user", None)), False, False),
    ],
)
def test_who_shares_a_quota(entity: Any, shared_by_clients: bool, shared_by_users: bool) -> None:
    assert used_by_others(entity, "u", "other") == shared_by_clients
    assert used_by_others(entity, "other", "c") == shared_by_users


def test_the_longest_of_several_waits_counts() -> None:
    """A short wait for request time does not end the long wait for bytes."""
    held = throttles({})
    calls: list[Any] = []
    held._loop = SimpleNamespace(time=lambda: 100.0, call_later=lambda *call: calls.append(call))
    woken: list[str] = []
    client: Any = Woken(woken)
    held.hold(client, 5000)
    held.hold(client, 10)
    held.hold(client, 9000)
    for _, wake, *arguments in calls:
        wake(*arguments)
    assert len(calls) == 2
    assert woken == ["muted"] * 3 + ["unmuted"]
    assert (held.throttles, held.throttled_ms) == (1, 9000), "each ms once"


def test_what_a_share_fetch_is_told_counts_once_and_as_its_own() -> None:
    held = throttles({(("client-id", None),): 1000.0})
    client = connection("u", "c")
    client.mute = lambda: None
    wait_ms = held.charge_late(client, 1_000_000)
    assert wait_ms > 0
    held.set_throttle_time(client, ShareFetchResponse(throttle_time_ms=wait_ms), is_late=True)
    assert held.response_ms == {ShareFetchResponse.API_KEY: wait_ms}


class Woken:
    """A connection that records what is done to it."""

    def __init__(self, told: list[str]) -> None:
        self.mute = lambda: told.append("muted")
        self.unmute = lambda: told.append("unmuted")


def test_partitions_that_are_made_are_charged_to_the_user() -> None:
    held = throttles({})
    held._quotas.quotas[(("user", "u"),)] = {"controller_mutation_rate": 1.0}  # type: ignore[index]
    held._config |= {"controller.quota.window.num": 11, "controller.quota.window.size.seconds": 1}
    assert held.mutations("User:v", "c", strict=True) is None
    first = held.mutations("User:u", "c", strict=True)
    assert first is not None
    assert first.charge(100)
    second = held.mutations("User:u", "d", strict=True)
    assert second is not None
    assert not second.charge(1)
    assert second.wait_ms() > 0


def test_ids_that_clients_make_up_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_throttles, "MAX_BYTES", 100_000)
    found = throttles(EVERYBODY)
    for number in range(100):
        found.charge(connection("ann", f"{number}-" + "x" * 30_000), FETCH, 1)
        found.charge(connection("ann", f"{number}"), FETCH, 1)
        found.mutations("User:ann", f"{number}-" + "x" * 30_000, strict=True)
        tables = (found._limits, found._rates, found._buckets)
        assert all(table.bytes <= 100_000 for table in tables)
    assert len(found._rates) > 1


def test_a_users_rate_is_not_forgotten_for_the_many_ids_it_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_throttles, "MAX_BYTES", 20_000)
    found = throttles({(("user", None),): 1.0})
    assert found.charge(connection("ann", "first"), FETCH, 1) == 0
    for number in range(100):
        assert found.charge(connection("ann", f"id-{number}"), FETCH, 100) > 0


def test_each_step_of_a_late_answer_is_its_clients_time() -> None:
    spent: list[int] = []
    held = throttles({(("client-id", None),): 1.0})
    held.spent = lambda connection, began: spent.append(began)  # type: ignore[method-assign]
    loop = asyncio.new_event_loop()

    async def handler(result: asyncio.Future[int]) -> int:
        await asyncio.sleep(0)
        try:
            return await result
        except ValueError:
            await asyncio.sleep(0)
            return -1

    async def both() -> tuple[int, int]:
        good: asyncio.Future[int] = loop.create_future()
        bad: asyncio.Future[int] = loop.create_future()
        who = connection("u", "c")
        loop.call_later(0.001, good.set_result, 7)
        first = await held.timed(who, handler(good))
        loop.call_later(0.001, bad.set_exception, ValueError())
        return first, await held.timed(who, handler(bad))

    try:
        assert loop.run_until_complete(both()) == (7, -1)
    finally:
        loop.close()
    assert len(spent) == 3 + 4
