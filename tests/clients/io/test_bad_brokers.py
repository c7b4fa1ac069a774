"""The clients' connections to what is no broker, to brokers that fail in every way, and to brokers
that lag behind: clear errors, nothing that waits for ever, and another broker is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kstore.clients.io.cluster import ANY, GROUP, ClusterClient
from kstore.clients.io.connection import BrokerConnection
from kstore.config.client.configs import client_settings
from kstore.config.definition import ConfigError
from kstore.errors import (
    ErrorCode,
    KafkaError,
    NetworkError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kstore.protocol.groups.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kstore.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kstore.protocol.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kstore.protocol.registry import encode_response
from tests.reference.fake_broker import HANG_UP, SILENCE, FakeBroker

LONG_S = 60
QUICK = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "retry_backoff_max_ms": 20}


def client(*servers: str, **keywords: Any) -> ClusterClient:
    """A client that tries again soon."""
    return ClusterClient(client_settings("admin", servers, QUICK | keywords))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's body; it ends in any case."""

    async def limited() -> None:
        async with asyncio.timeout(LONG_S):
            await main

    asyncio.run(limited())


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> Any:
    """A port where something else than a broker listens; yields its address."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "can't be read .*HTTP/1.1 400.*port of a Kafka"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "can't be read .*security.protocol"),
        (b"", "closed the connection without an answer.*security.protocol"),
        (b"\x00\x00\x00\x10\x00\x00", "closed the connection without an answer"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x07", "another request than the one in turn"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00", "can't be read"),
        (b"\xff\xff\xff\xff", "a frame announces -1 bytes"),
    ],
)
def test_what_is_no_broker_is_named(answer: bytes, words: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        writer.close()

    async def main() -> None:
        async with listening(serve) as address:
            cluster = client(address)
            with pytest.raises(NetworkError, match=words) as caught:
                await cluster.connection(ANY)
            assert address in str(caught.value)
            await cluster.close()

    run(main())


def test_who_never_answers_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    async def main() -> None:
        async with listening(serve) as address:
            cluster = client(address, request_timeout_ms=30)
            with pytest.raises(NetworkError, match="did not answer ApiVersions in time"):
                await cluster.connection(ANY)
            await cluster.close()

    run(main())


def test_a_late_answer_ends_the_connection_and_the_requests_behind_it(fake: FakeBroker) -> None:
    fake.handlers[MetadataRequest] = lambda _: SILENCE

    async def main() -> None:
        cluster = client(fake.address, request_timeout_ms=100)
        connection = await cluster.connection(ANY)
        first = connection.send(MetadataRequest(), 4)
        patient = connection.send(MetadataRequest(), 4, extra_wait_ms=60_000)
        with pytest.raises(RequestTimedOutError, match="did not answer MetadataRequest in 100 ms"):
            await first
        with pytest.raises(NetworkError, match="an earlier MetadataRequest"):
            await patient
        assert connection.is_lost
        with pytest.raises(NetworkError, match="an earlier MetadataRequest"):
            await connection.send(MetadataRequest(), 4)
        assert await cluster.connection(ANY) is not connection
        await cluster.close()

    run(main())


def test_a_lost_connection_fails_all_its_requests(fake: FakeBroker) -> None:
    fake.handlers[MetadataRequest] = lambda _: HANG_UP

    async def main() -> None:
        cluster = client(fake.address)
        connection = await cluster.connection(ANY)
        waiting = [connection.send(MetadataRequest(), 4) for _ in range(5)]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(r, NetworkError) and fake.address in str(r) for r in results)
        assert len({id(r) for r in results}) == 5
        await cluster.close()

    run(main())


def test_an_answer_that_nobody_waits_for_any_more_is_dropped(fake: FakeBroker) -> None:
    async def main() -> None:
        cluster = client(fake.address)
        connection = await cluster.connection(ANY)
        given_up = connection.send(MetadataRequest(topics=None), 4)
        kept = connection.send(MetadataRequest(topics=[]), 4)
        given_up.cancel()
        answer = await kept
        assert isinstance(answer, MetadataResponse)
        assert answer.topics == []
        await cluster.close()

    run(main())


def test_close_fails_what_is_under_way(fake: FakeBroker) -> None:
    fake.handlers[FindCoordinatorRequest] = lambda _: SILENCE

    async def main() -> None:
        cluster = client(fake.address)
        await cluster.refresh(None)
        asking = asyncio.ensure_future(
            cluster.retrying(lambda: cluster.coordinator(GROUP, "g"), 60_000)
        )
        while not fake.requests:
            await asyncio.sleep(0.001)
        await cluster.close()
        with pytest.raises(NetworkError, match="closed"):
            await asking
        with pytest.raises(RuntimeError, match="the client is closed"):
            await cluster.ask(7, MetadataRequest())

    run(main())


def test_close_while_connecting() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    async def main() -> None:
        async with listening(serve) as address:
            cluster = client(address)
            connecting = asyncio.ensure_future(cluster.connection(ANY))
            await asyncio.sleep(0)
            await cluster.close()
            with pytest.raises((NetworkError, asyncio.CancelledError)):
                await connecting

    run(main())


def test_the_next_server_is_asked_when_one_is_dead(fake: FakeBroker) -> None:
    async def main() -> None:
        cluster = client("127.0.0.1:1", fake.address, "localhost:2")
        await cluster.refresh(None)
        assert set(cluster.view.brokers) == {7}
        await cluster.close()

    run(main())


def test_all_servers_are_named_when_all_are_dead() -> None:
    async def main() -> None:
        cluster = client("127.0.0.1:1", "127.0.0.1:2")
        with pytest.raises(NetworkError, match="no broker can be reached") as caught:
            await cluster.refresh(None)
        assert "127.0.0.1:1" in str(caught.value)
        assert "127.0.0.1:2" in str(caught.value)
        await cluster.close()

    run(main())


def test_a_name_that_does_not_exist_is_named() -> None:
    async def main() -> None:
        cluster = client("kstore.invalid:9092")
        with pytest.raises(NetworkError, match=r"address of 'kstore.invalid'.*bootstrap.servers"):
            await cluster.refresh(None)
        await cluster.close()

    run(main())


def test_bootstrap_servers_may_be_resolved_to_their_canonical_names(fake: FakeBroker) -> None:
    async def main() -> None:
        lookup = "resolve_canonical_bootstrap_servers_only"
        cluster = client(fake.address, "kstore.invalid:1", client_dns_lookup=lookup)
        await cluster.refresh(None)
        assert set(cluster.view.brokers) == {7}
        await cluster.close()

    run(main())


def test_an_old_broker_is_asked_for_its_versions_again_in_one_that_it_has(
    fake: FakeBroker,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Refuses ApiVersions above 0, as brokers before 2.4 do; then offers nothing else."""
        for _ in range(2):
            size = int.from_bytes(await reader.readexactly(4), "big")
            request = await reader.readexactly(size)
            version, correlation_id = request[3], int.from_bytes(request[4:8], "big")
            code = ErrorCode.UNSUPPORTED_VERSION if version else 0
            writer.write(encode_response(ApiVersionsResponse(error_code=code), 0, correlation_id))
        await reader.read(-1)
        writer.close()

    async def main() -> None:
        async with listening(serve) as address:
            cluster = client(address)
            connection = await cluster.connection(ANY)
            assert connection.versions.features == {}
            with pytest.raises(UnsupportedVersionError, match="does not offer Metadata"):
                await cluster.refresh(None)
            await cluster.close()

    run(main())


def test_apis_that_refuse_are_errors(fake: FakeBroker) -> None:
    fake.handlers[ApiVersionsRequest] = lambda _: ApiVersionsResponse(error_code=58)
    fake.handlers[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(
        coordinators=[Coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    )

    async def main() -> None:
        cluster = client(fake.address)
        with pytest.raises(KafkaError, match="refuses ApiVersions"):
            await cluster.refresh(None)
        fake.handlers[ApiVersionsRequest] = fake._api_versions
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await cluster.coordinator(GROUP, "g")
        await cluster.close()

    run(main())


def test_a_throttled_client_waits(fake: FakeBroker) -> None:
    def throttled(request: MetadataRequest) -> MetadataResponse:
        answer = fake._metadata(request)
        answer.throttle_time_ms = 60
        return answer

    fake.handlers[MetadataRequest] = throttled

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cluster = client(fake.address)
        await cluster.refresh(None)
        connection = await cluster.connection(ANY)
        until = connection.throttled_until
        await cluster.ask(ANY, MetadataRequest(topics=[]))
        assert until <= loop.time() + 0.01  # clocks of timers are coarse
        await cluster.close()

    run(main())


def test_idle_connections_are_closed(fake: FakeBroker) -> None:
    async def main() -> None:
        cluster = client(fake.address, connections_max_idle_ms=20)
        connection = await cluster.connection(ANY)
        while not connection.is_lost:
            await asyncio.sleep(0.005)
        await cluster.refresh(None)  # and opened again when they are needed
        await cluster.close()

    run(main())


def test_security_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Kerberos is not supported"):
        client("h:1", security_protocol="SASL_SSL")
    with pytest.raises(ConfigError, match=r"PLAIN needs a user and a password"):
        client("h:1", security_protocol="sasl_plaintext", sasl_mechanism="PLAIN")


def test_what_was_written_leaves_before_a_connection_is_closed() -> None:
    """As with acks 0, where nobody waits for an answer."""
    size = 8_000_000
    received = 0

    async def main() -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal received
            while data := await reader.read(65536):
                received += len(data)
            writer.close()
            ended.set()

        async with listening(serve) as address:
            host, _, port = address.rpartition(":")
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: BrokerConnection(address, 1, "me", request_timeout_ms=1000), host, int(port)
            )
            topics = [MetadataRequestTopic(name="x" * 30_000) for _ in range(size // 30_000)]
            assert connection.send(MetadataRequest(topics=topics), 4, answered=False).done()
            connection.close()
            await connection.wait_closed(LONG_S)
            await ended.wait()
        assert received > size - 30_000

    run(main())


# ---- several brokers ----


def told(
    brokers: list[FakeBroker], max_partition_epoch: int, leader_epoch: int = 0
) -> Callable[[MetadataRequest], MetadataResponse]:
    """Metadata with all the brokers, and topic t with the epochs given."""

    def answer(_request: MetadataRequest) -> MetadataResponse:
        row = MetadataResponsePartition(
            leader_id=0, leader_epoch=leader_epoch, partition_epoch=max_partition_epoch
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=i, host="127.0.0.1", port=broker.port)
                for i, broker in enumerate(brokers)
            ],
            cluster_id="c",
            max_partition_epoch=max_partition_epoch,
            topics=[MetadataResponseTopic(name="t", partitions=[row])],
        )

    return answer


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    with FakeBroker() as a, FakeBroker() as b, FakeBroker() as c:
        made = [a, b, c]
        for broker in made:
            broker.handlers[MetadataRequest] = told(made, 5)
        yield made


def test_outdated_metadata_is_not_taken_and_another_broker_asked(
    brokers: list[FakeBroker],
) -> None:
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
            # What was `stays` is told to be somewhere else: only the bootstrap server leads there.
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
            NetworkError, match=r"broker 1 is there: check its advertised.listeners"
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


def test_requests_that_wait_long_go_by_lanes_of_their_own(fake: FakeBroker) -> None:
    fake.handlers[FindCoordinatorRequest] = lambda _: SILENCE

    async def main() -> None:
        cluster = client(fake.address)
        await cluster.refresh(None)
        waits = asyncio.ensure_future(cluster.ask(7, FindCoordinatorRequest(), lane="slow"))
        while not fake.requests:
            await asyncio.sleep(0.001)
        assert await cluster.ask(7, MetadataRequest(topics=[]))
        assert not waits.done()
        waits.cancel()
        await cluster.close()

    run(main())


def test_callers_that_come_together_share_one_connection(fake: FakeBroker) -> None:
    async def main() -> None:
        cluster = client(fake.address)
        found = await asyncio.gather(*(cluster.connection(ANY) for _ in range(20)))
        assert len(set(found)) == 1
        assert fake.connections == 1
        await cluster.close()

    run(main())
