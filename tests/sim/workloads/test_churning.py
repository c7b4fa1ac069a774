"""What the simulated administrator may conclude from answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kstore.errors import ErrorCode
from kstore.protocol.metadata.topics import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.sim.history import History
from tests.sim.workloads.churning import Administrator
from tests.sim.workloads.client import UnansweredError


class Brokers:
    """Answer that all is done, or fail a deletion with this error; None: no answer."""

    def __init__(self, deletion: int | None) -> None:
        self.deletion = deletion

    async def ask_anyone(self, request: Any, **given: Any) -> Any:
        if not isinstance(request, DeleteTopicsRequest):
            return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="a")])
        if self.deletion is None:
            raise UnansweredError
        row = DeletableTopicResult(name="a", error_code=self.deletion)
        return DeleteTopicsResponse(responses=[row])


def told(deletion: int | None, *, grows: bool) -> set[int]:
    """The possible partition counts of a topic of two after a deletion and an expansion."""
    brokers: Any = Brokers(deletion)
    administrator = Administrator(brokers, History(), 1)
    administrator._topics = {"a": {2}}

    async def story() -> None:
        await administrator._delete("a")
        if grows:
            await administrator._grow("a")

    asyncio.run(story())
    return administrator._topics["a"]


@pytest.mark.parametrize("deletion", [None, ErrorCode.REQUEST_TIMED_OUT])
def test_a_deletion_that_was_not_answered_may_come_later(deletion: int | None) -> None:
    assert told(deletion, grows=False) == {0, 2}
    assert told(deletion, grows=True) == {0, 3}


def test_a_deletion_that_was_answered_has_happened() -> None:
    assert told(ErrorCode.NONE, grows=False) == {0}


def test_a_restored_store_has_topics_as_when_it_was_copied_and_requests_that_arrive_later() -> None:
    brokers: Any = Brokers(None)
    administrator = Administrator(brokers, History(), 1)
    administrator._topics = {"grown": {2}, "deleted": {3}, "growing": {1}}
    administrator.store_copied()
    administrator._topics = {"grown": {4}, "deleted": {0}, "growing": {1, 2}, "created": {5}}
    administrator._in_flight = "growing"
    administrator.store_restored()
    assert administrator._topics == {
        "grown": {2}, "deleted": {3}, "growing": {1, 2}, "created": {0},
    }  # fmt: skip
