"""The group coordinator in a cluster: no change of leaders loses what was answered."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
from kstore.errors import CoordinatorNotAvailableError, ErrorCode, KafkaError
from tests.beside.waiting import reached, turns
from tests.broker.runtime.coordinators.cluster_host import ASKED, GROUPS, HERE, THERE, Host, run
from tests.broker.runtime.groups.group_requests import commit, committed, join


async def served(host: Host) -> GroupCoordinator:
    host.lead(GROUPS)
    host.places[GROUPS].advance()
    coordinator = host.groups()
    await coordinator.wait_loaded()
    return coordinator


async def code_of(answer: Awaitable[Any]) -> int:
    """The error code of an answer, or of its first row."""
    try:
        found = await answer
    except KafkaError as error:
        return error.code
    return int(found.topics[0].partitions[0].error_code)


def test_who_does_not_lead_is_no_coordinator(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        assert await coordinator.leader_of("g") == HERE
        host.follow(GROUPS)
        assert await coordinator.leader_of("g") == THERE
        assert await code_of(coordinator.handle("g", commit(1), ASKED)) == (
            ErrorCode.NOT_COORDINATOR
        )
        host.tell(GROUPS, -1)
        with pytest.raises(KafkaError) as refused:
            await coordinator.leader_of("g")
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(tmp_path, story)


def test_an_answer_waits_for_the_followers(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        first = asyncio.create_task(code_of(coordinator.handle("g", commit(1), ASKED)))
        second = asyncio.create_task(code_of(coordinator.handle("g", commit(2), ASKED)))
        reading = asyncio.create_task(committed(coordinator))
        await turns()
        assert host.places[GROUPS].log_end_offset == 2
        assert not first.done()
        assert not reading.done(), "what it shows may still be lost"
        host.places[GROUPS].advance(1)
        assert await first == ErrorCode.NONE
        await turns()
        assert not second.done()
        host.places[GROUPS].advance()
        assert (await second, await reading) == (ErrorCode.NONE, 2)

    run(tmp_path, story)


def test_who_may_have_been_replaced_answers_nothing_by_what_it_alone_knows(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        host.sure = False
        refused = coordinator.handle("g", commit(1), ASKED)
        assert await code_of(refused) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(CoordinatorNotAvailableError):
            await committed(coordinator)
        assert host.places[GROUPS].log_end_offset == 0

    run(tmp_path, story)


def test_a_join_is_answered_once_the_followers_know_the_generation(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        joining = asyncio.create_task(coordinator.handle("g", join(), ASKED))
        await reached(lambda: host.places[GROUPS].log_end_offset or joining.done())
        host.places[GROUPS].advance()
        joined: Any = await joining
        assert joined.error_code == ErrorCode.NONE

    run(tmp_path, story)


def test_who_waits_when_the_leader_changes_looks_elsewhere(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        waiting = asyncio.create_task(code_of(coordinator.handle("g", commit(1), ASKED)))
        await turns()
        host.follow(GROUPS, keeps=0)
        assert await waiting == ErrorCode.NOT_COORDINATOR
        host.lead(GROUPS)
        assert await coordinator.leader_of("g") == HERE
        assert await committed(coordinator) is None

    run(tmp_path, story)


def test_what_the_leader_before_left_is_served_once_the_followers_have_it(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        coordinator = await served(host)
        waiting = asyncio.create_task(code_of(coordinator.handle("g", commit(5), ASKED)))
        await turns()
        host.follow(GROUPS)
        assert await waiting == ErrorCode.NOT_COORDINATOR
        host.lead(GROUPS)
        await turns()
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await code_of(coordinator.handle("g", commit(6), ASKED)) == loading
        host.places[GROUPS].advance()
        await coordinator.wait_loaded()
        assert await committed(coordinator) == 5

    run(tmp_path, story)


class Step(NamedTuple):
    kind: str
    number: int = 0


STEPS = st.lists(
    st.one_of(
        st.just(Step("commit")),
        st.builds(Step, st.just("advance"), st.integers(0, 3)),
        st.builds(Step, st.just("change leader"), st.integers(0, 3)),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_what_was_answered_is_never_lost(steps: list[Step]) -> None:
    """Commits, then followers that catch up, and leaders that have any part of the uncommitted
    records.
    """

    async def story(host: Host) -> None:
        coordinator = await served(host)
        place = host.places[GROUPS]
        number, answered = 0, -1
        asked: dict[asyncio.Task[int], int] = {}
        for step in steps:
            if step.kind == "commit":
                number += 1
                task = asyncio.create_task(code_of(coordinator.handle("g", commit(number), ASKED)))
                asked[task] = number
            elif step.kind == "advance":
                place.advance(min(place.high_watermark + step.number, place.log_end_offset))
            else:
                keeps = min(place.high_watermark + step.number, place.log_end_offset)
                host.follow(GROUPS, keeps=keeps)
                await turns()
                assert all(task.done() for task in asked)
                host.lead(GROUPS)
                place.advance()
                await coordinator.wait_loaded()
                assert (await committed(coordinator) or -1) >= answered
            await turns()
            for task, offset in asked.items():
                if task.done() and task.result() == ErrorCode.NONE:
                    answered = max(answered, offset)
                    assert place.high_watermark >= 1
        place.advance()

    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), story)
