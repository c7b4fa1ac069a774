"""Connections to what is no broker, or fails in every way: clear errors, and no hanging."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kstore.clients.io.cluster import ANY, GROUP
from kstore.clients.io.connection import BrokerConnection
from kstore.config.definition import ConfigError
from kstore.errors import (
    ErrorCode,
    KafkaError,
    NetworkError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest
from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kstore.protocol.registry import encode_response
from tests.clients.io.quick_client import LONG_S, client, run
from tests.plain_messages import Answer
from tests.reference.fake_broker import HANG_UP, SILENCE, FakeBroker


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
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers with HTTP, .*port of a web server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "answers with TLS, .*security.protocol"),
        (b"", "closed the connection without an answer.*security.protocol"),
        (b"\x00\x00\x00\x10\x00\x00", "closed the connection without an answer"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x07", "does not belong to the oldest request"),
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


def test_an_old_broker_is_asked_for_its_versions_again_in_one_that_it_has(fake: FakeBroker) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Refuses ApiVersions above 0, as brokers before 2.4 do; then offers nothing else."""
        for _ in range(2):
            size = int.from_bytes(await reader.readexactly(4), "big")
            request = await reader.readexactly(size)
            version, correlation_id = request[3], int.from_bytes(request[4:8], "big")
            code = ErrorCode.UNSUPPORTED_VERSION if version else 0
            writer.write(encode_response(Answer.ApiVersions(error_code=code), 0, correlation_id))
        await reader.read(-1)
        writer.close()

    async def main() -> None:
        async with listening(serve) as address:
            cluster = client(address)
            connection = await cluster.connection(ANY)
            assert connection.versions.features == {}
            with pytest.raises(UnsupportedVersionError, match="does not support Metadata"):
                await cluster.refresh(None)
            await cluster.close()

    run(main())


def test_apis_that_refuse_are_errors(fake: FakeBroker) -> None:
    fake.handlers[ApiVersionsRequest] = lambda _: Answer.ApiVersions(error_code=58)
    fake.handlers[FindCoordinatorRequest] = lambda _: Answer.FindCoordinator(
        coordinators=[{"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}]
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
    """As with acks 0, where the client waits for no answer."""
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
