"""Connections to several brokers, some dead or outdated: metadata never gets older."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from kstore.errors import ErrorCode, KafkaError, NetworkError, RequestTimedOutError
from kstore.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from tests.clients.io.quick_client import LONG_S, client, run
from tests.clients.metadata_answers import metadata
from tests.reference.fake_broker import SILENCE, FakeBroker


def told(
    brokers: list[FakeBroker], max_partition_epoch: int, leader_epoch: int = 0
) -> Callable[[MetadataRequest], MetadataResponse]:
    """Metadata with all the brokers, and topic t with the epochs given."""
    row = {"leader_id": 0, "leader_epoch": leader_epoch, "partition_epoch": max_partition_epoch}
    ports = [broker.port for broker in brokers]
    return lambda _request: metadata(ports, row, max_partition_epoch=max_partition_epoch)


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    with FakeBroker() as a, FakeBroker() as b, FakeBroker() as c:
        made = [a, b, c]
        for broker in made:
            broker.handlers[MetadataRequest] = told(made, 5)
        yield made


def test_outdated_metadata_is_not_taken_and_another_broker_asked(brokers: list[FakeBroker]) -> None:
    async def main() -> None:
        cluster = client(brokers[0].address)
        await cluster.refresh(["t"])
        for broker in brokers[:2]:
            broker.handlers[MetadataRequest] = told(brokers, 4)
        for _ in range(10):
            await cluster.refresh(["t"])
            assert cluster.view.max_partition_epoch == 5
        await cluster.close()

    run(main())


def test_without_the_extension_outdated_metadata_is_taken(brokers: list[FakeBroker]) -> None:
    async def main() -> None:
        cluster = client(brokers[0].address, kstore_kip232_enable=False)
        await cluster.refresh(["t"])
        row = told(brokers, 4)
        for broker in brokers:
            broker.handlers[MetadataRequest] = row
        await cluster.refresh(["t"])
        await cluster.close()

    run(main())


def test_where_all_brokers_lag_the_refresh_ends_in_time(brokers: list[FakeBroker]) -> None:
    async def main() -> None:
        cluster = client(brokers[0].address, default_api_timeout_ms=50)
        await cluster.refresh(["t"])
        for broker in brokers:
            broker.handlers[MetadataRequest] = told(brokers, 4)
        with pytest.raises(RequestTimedOutError, match="older than what is known"):
            await cluster.refresh(["t"])
        assert cluster.view.max_partition_epoch == 5
        await cluster.close()

    run(main())


def test_a_broker_that_stands_still_does_not_keep_metadata_away(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kstore.clients.io.cluster.FIRST_PATIENCE_S", 0.02)

    async def main() -> None:
        cluster = client(*(broker.address for broker in brokers))
        await cluster.refresh(["t"])
        for broker in brokers[:2]:
            broker.handlers[MetadataRequest] = lambda _: SILENCE
        await asyncio.gather(*(cluster.refresh(["t"]) for _ in range(5)))
        await cluster.close()

    run(main())


def test_known_brokers_that_have_gone_lead_back_to_the_bootstrap_servers() -> None:
    """KIP-899."""

    async def main() -> None:
        with FakeBroker() as stays, FakeBroker() as goes:
            stays.handlers[MetadataRequest] = told([goes], 1)
            goes.handlers[MetadataRequest] = told([goes], 1)
            settings = {"rebootstrap": client(stays.address), "none": client(
                stays.address, metadata_recovery_strategy="none"
            )}  # fmt: skip
            for cluster in settings.values():
                await cluster.refresh(["t"])
                assert cluster.view.brokers[0].port == goes.port
                await cluster.connection(0)
                await cluster.refresh(["t"])
        with FakeBroker() as stays_2:
            # The client learns that `stays` is elsewhere: only the bootstrap server leads there.
            for strategy, cluster in settings.items():
                cluster._nodes._bootstrap[0].address = ("127.0.0.1", stays_2.port)
                stays_2.handlers[MetadataRequest] = told([stays_2], 2)
                if strategy == "none":
                    with pytest.raises(NetworkError):
                        await cluster.refresh(["t"])
                else:
                    await cluster.refresh(["t"])
                    assert cluster.view.brokers[0].port == stays_2.port
                await cluster.close()

    run(main())


@pytest.mark.parametrize("asked", [True, False])
def test_a_client_begins_again_when_it_is_told_to_or_has_waited_for_long(
    brokers: list[FakeBroker], asked: bool
) -> None:
    """KIP-1102: REBOOTSTRAP_REQUIRED, or no metadata for the trigger's time."""

    async def main() -> None:
        trigger = 300_000 if asked else 0
        cluster = client(brokers[0].address, metadata_recovery_rebootstrap_trigger_ms=trigger)
        brokers[0].handlers[MetadataRequest] = told(brokers[1:2], 5)
        await cluster.refresh(["t"])
        await cluster.connection(0)
        refusal = MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED if asked else 3)
        brokers[1].handlers[MetadataRequest] = lambda _: refusal
        brokers[0].handlers[MetadataRequest] = told(brokers[2:], 6)
        async with asyncio.timeout(LONG_S):
            while cluster.view.max_partition_epoch < 6:
                try:
                    await cluster.refresh(["t"])
                except KafkaError:
                    continue
        assert cluster.view.brokers[0].port == brokers[2].port
        await cluster.close()

    run(main())


def test_an_advertised_address_where_nobody_is_is_named(brokers: list[FakeBroker]) -> None:
    async def main() -> None:
        elsewhere = FakeBroker()
        elsewhere._listener.close()
        brokers[0].handlers[MetadataRequest] = told([brokers[0], elsewhere], 5)
        cluster = client(brokers[0].address)
        await cluster.refresh(["t"])
        with pytest.raises(
            NetworkError, match=r"broker 1 advertises this address: check its advertised.listeners"
        ):
            await cluster.connection(1)
        await cluster.close()

    run(main())


def test_a_broker_with_another_address_is_connected_to_there(brokers: list[FakeBroker]) -> None:
    async def main() -> None:
        cluster = client(brokers[0].address)
        await cluster.refresh(["t"])
        before = await cluster.connection(1)
        for broker in brokers:
            broker.handlers[MetadataRequest] = told([brokers[0], brokers[2], brokers[1]], 5)
        await cluster.refresh(["t"])
        after = await cluster.connection(1)
        assert after.address == brokers[2].address != before.address
        assert after.node_id == 1
        with pytest.raises(NetworkError, match="broker 9 is not among"):
            await cluster.connection(9)
        await cluster.close()

    run(main())
