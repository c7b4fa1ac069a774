"""A single broker and a broker of a cluster: the two forms of one process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kstore.broker.compose import compose
from kstore.broker.compose.cluster_broker import ClusterBroker
from kstore.broker.compose.standalone_broker import StandaloneBroker
from kstore.broker.runtime.membership.membership import StandaloneMembership
from kstore.broker.state.work import whole
from kstore.config import BrokerConfig
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.controller.broker_requests import BrokerHeartbeatRequest


@pytest.mark.parametrize(
    ("settings", "form"),
    [({}, StandaloneBroker), ({"kstore.coordination.dir": "shared"}, ClusterBroker)],
)
def test_the_settings_decide_the_form(settings: dict[str, str], form: type) -> None:
    server: Any = object()
    loop = asyncio.new_event_loop()
    try:
        config = BrokerConfig.load(None, overrides={"log.dirs": "d"} | settings)
        broker = compose(config, loop, server, lambda sentence, about="": None)
        assert type(broker) is form
        assert broker.shares_store == (form is ClusterBroker)
        broker.close()
    finally:
        loop.close()


def test_who_is_alone_answers_at_once_and_is_its_own_controller() -> None:
    async def story() -> None:
        place = StandaloneMembership(7, 42)
        await place.start()
        await place.wait_joined()
        assert (place.controller_id, place.broker_epoch, place.controller_epoch) == (7, 42, 1)
        assert (place.is_controller, place.joined, place.may_answer_alone()) == (True, True, True)
        assert place.reachable("PLAINTEXT") is None
        assert whole(place.gauges()) == {}
        assert not place.sees_the_store()  # no other broker shares it
        with pytest.raises(KafkaError) as refused:
            await place.ask_controller(BrokerHeartbeatRequest(), 1.0)
        assert refused.value.code == ErrorCode.NOT_CONTROLLER
        await place.close()

    asyncio.run(story())
