"""A controller without the store finishes later; one that was replaced retries nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kstore.broker.state.metadata.topic_rules import NewPartitions, NewTopic, TopicError
from kstore.errors import ErrorCode
from tests.beside.waiting import reached, turns
from tests.reference.controller_host import Cluster, run


def test_an_expansion_that_the_stores_absence_interrupts_is_finished_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create_topic(NewTopic("t", 1, 3))
        await cluster.settle()
        kind = type(controller.coordination)
        with monkeypatch.context() as patch:
            begin = controller.store.begin_expansion

            def begin_and_lose(*given: Any) -> None:
                begin(*given)
                patch.setattr(kind, "away", True)

            patch.setattr(controller.store, "begin_expansion", begin_and_lose)
            with pytest.raises(TopicError) as refused:
                await controller.growth.add_partitions(NewPartitions("t", 3))
            assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert "t" in controller.state.expansions
        await reached(lambda: not controller.state.expansions)
        assert len(controller.state.topics["t"].partitions) == 3

    run(story)


def test_one_that_is_over_does_not_look_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        controller = cluster.controller
        await cluster.settle()
        async with controller._one_at_a_time:
            controller.brokers_changed.set()
            await turns(10)  # by now, each follower of the brokers waits for the lock
            controller.deposed("another was elected")
        await turns(10)  # the store refuses its step, and the waiting caller gets the error

    with caplog.at_level(logging.INFO):
        run(story)
    assert "reads the list of brokers again" not in caplog.text
