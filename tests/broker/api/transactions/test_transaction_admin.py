"""ListTransactions: what a pattern is matched against, and in which turns."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.acls import Acl, AclOperation, AclResourceType
from kstore.broker.api import RequestContext
from kstore.broker.api.transactions import admin as transaction_admin
from kstore.broker.runtime import slices
from kstore.broker.state.linear_regex import LinearRegex
from kstore.broker.state.security.authorizer import Authorizer
from kstore.broker.state.transactions.coordinator_shard import TransactionSettings, TransactionShard
from kstore.broker.state.transactions.state import ONGOING, Transaction
from kstore.protocol.transactions.admin import ListTransactionsRequest
from tests.reference.acl_rules import load

CONTEXT = RequestContext(66, 2, 1, "c", "1.2.3.4", "peer", "PLAINTEXT", "User:ann")


def shard(*ids: str) -> TransactionShard:
    found = TransactionShard(TransactionSettings())
    for number, name in enumerate(ids):
        found.transactions[name] = Transaction(name, number, state=ONGOING)
    return found


def broker(of: TransactionShard, *seen: str) -> Any:
    """A broker with these transactions, of which the user may see some."""
    authorizer = Authorizer()
    kind, describe = AclResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE
    load(authorizer, (Acl(kind, name, "User:ann", describe) for name in seen))
    partitions = [SimpleNamespace(error_code=0, shard=of)]
    coordinator = SimpleNamespace(partitions=partitions)
    return SimpleNamespace(
        authorizer=authorizer,
        node=SimpleNamespace(now_ms=lambda: 0),
        transactions=lambda: coordinator,
    )


async def listed(of: Any, pattern: str) -> list[str]:
    request = ListTransactionsRequest(transactional_id_pattern=pattern)
    answer = await transaction_admin.handle_list_transactions(of, request, CONTEXT)
    return [state.transactional_id for state in answer.transaction_states]


def test_a_pattern_meets_only_ids_that_who_asks_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[str] = []
    matches = LinearRegex.matches
    monkeypatch.setattr(
        LinearRegex, "matches", lambda self, text: met.append(text) or matches(self, text)
    )
    found = broker(shard("mine-1", "theirs-1", "mine ü"), "mine-1", "mine ü")
    assert asyncio.run(listed(found, "mine .*")) == ["mine ü"]
    assert met == ["mine-1", "mine ü"]


def test_a_long_id_is_matched_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[int, threading.Thread] = {}
    matches = LinearRegex.matches

    def noting(regex: LinearRegex, text: str) -> bool:
        threads[len(text)] = threading.current_thread()
        return matches(regex, text)

    monkeypatch.setattr(LinearRegex, "matches", noting)
    ids = ["ü" * 30_000, "ü" * 100]
    found = broker(shard(*ids), *ids)
    assert asyncio.run(listed(found, "(ü?){200}ü*")) == ids
    assert threads[30_000] is not threading.main_thread()
    assert threads[100] is threading.main_thread()


def test_others_have_their_turn_between_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    ids = [f"t{number}" for number in range(20)]
    found = broker(shard(*ids), *ids)
    turns = 0

    async def main() -> None:
        nonlocal turns
        task = asyncio.create_task(listed(found, ".*"))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(main())
    assert turns > len(ids)
