"""broker/runtime/peers/peers.py: the outcomes of requests to another broker, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.metadata.cache import MetadataCache
from kstore.broker.runtime.peers.peers import Peers
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage
from kstore.errors import NetworkError, RequestTimedOutError
from kstore.net.transport import new_loop
from kstore.protocol.logs.list_offsets import ListOffsetsRequest
from kstore.protocol.metadata.api_versions import ApiVersionsRequest
from kstore.protocol.metadata.metadata import MetadataRequest
from tests.plain_messages import Answer, Ask
from tests.reference.connection import RequestReceived, ServerConnection

CONFIG = {"inter.broker.listener.name": None}


class Peer:
    """A scripted broker. It answers with `answer`; None: no answer."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.connections = 0
        self.answer: Callable[[RequestReceived], Any] = lambda request: Answer.Metadata()
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        connection = ServerConnection()
        while data := await reader.read(65536):
            for request in connection.receive_data(data):
                self.seen.append(request)
                answer = self.answer(request)
                if answer is not None:
                    connection.respond(request, answer)
            writer.write(connection.data_to_send())


def run(story: Callable[[Peer, Peers, MetadataCache], Awaitable[None]]) -> None:
    """Run a scenario with one scripted peer, broker 2, and the connections of broker 1."""

    async def body() -> None:
        peer = Peer()
        await peer.start()
        image = MetadataImage("c").with_broker(
            BrokerImage(2, (Endpoint("PLAINTEXT", "127.0.0.1", peer.port),))
        )
        metadata = MetadataCache(image, lambda: None)
        node: Any = SimpleNamespace(loop=asyncio.get_running_loop(), node_id=1, config=CONFIG)
        peers = Peers(node, metadata, None)
        try:
            await story(peer, peers, metadata)
        finally:
            peers.close()
            await peer.stop()

    loop = new_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(body(), 30))
    finally:
        loop.close()


def test_pipelined_requests_get_their_own_answers() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        peer.answer = lambda request: Answer.Metadata(controller_id=request.header.correlation_id)
        answers = await asyncio.gather(*(peers.ask(2, MetadataRequest()) for _ in range(20)))
        assert [answer.controller_id for answer in answers] == list(range(20))
        assert [request.header.correlation_id for request in peer.seen] == list(range(20))
        assert peer.connections == 1
        assert peer.seen[0].header.client_id == "broker-1"

    run(story)


def test_requests_asked_before_the_connection_is_there_go_out_in_their_order() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        epochs: list[int] = []

        def answer(request: RequestReceived) -> Any:
            epochs.append(request.message.broker_epoch)  # type: ignore[attr-defined]
            return Answer.ControlledShutdown()

        peer.answer = answer
        await asyncio.gather(
            *(
                peers.ask(2, Ask.ControlledShutdown(broker_id=1, broker_epoch=number))
                for number in range(50)
            )
        )
        assert epochs == list(range(50))

    run(story)


def test_a_connection_whose_answers_may_have_kstores_fields_asks_for_them_first() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        def answer(request: RequestReceived) -> Any:
            asked = type(request.message) is ApiVersionsRequest
            return Answer.ApiVersions() if asked else Answer.ListOffsets(throttle_time_ms=7)

        peer.answer = answer
        for connections in (1, 2):
            answers = [await peers.ask(2, ListOffsetsRequest()) for _ in range(2)]
            assert [each.throttle_time_ms for each in answers] == [7, 7]
            hello, *rest = [request.message for request in peer.seen]
            assert isinstance(hello, ApiVersionsRequest)
            assert hello.extension_fields
            assert [type(each) for each in rest] == [ListOffsetsRequest] * 2
            assert peer.connections == connections
            peer.seen.clear()
            peers.forget(2)  # a new connection repeats the request

    run(story)


def test_a_broker_that_the_image_does_not_have_is_a_network_error() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        with pytest.raises(NetworkError, match="broker 9"):
            await peers.ask(9, MetadataRequest())

    run(story)


def test_a_lost_connection_fails_everything_outstanding_and_the_next_request_makes_a_new_one() -> (
    None
):
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        peer.answer = lambda request: None
        asked = [asyncio.create_task(peers.ask(2, MetadataRequest())) for _ in range(5)]
        while len(peer.seen) < 5:
            await asyncio.sleep(0.001)
        peer.hang_up()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [NetworkError] * 5
        peer.answer = lambda request: Answer.Metadata(controller_id=7)
        assert (await peers.ask(2, MetadataRequest())).controller_id == 7
        assert peer.connections == 2

    run(story)


def test_a_broker_that_came_back_at_its_address_is_asked_again() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        await peers.ask(2, MetadataRequest())
        await peer.stop()
        while True:
            try:
                await peers.ask(2, MetadataRequest(), 5)
            except NetworkError as problem:
                if "can't be reached" in str(problem):
                    break
        await peer.start()
        await peers.ask(2, MetadataRequest())

    run(story)


def test_no_answer_in_time_ends_the_connection_as_what_is_behind_waits_in_vain() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        peer.answer = lambda request: None
        behind = asyncio.create_task(peers.ask(2, MetadataRequest(), 20))
        with pytest.raises(RequestTimedOutError):
            await peers.ask(2, MetadataRequest(), 0.05)
        with pytest.raises(NetworkError):
            await behind

    run(story)


def test_a_request_that_waits_long_does_not_hold_up_another_kind() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        peer.answer = lambda request: (
            None if isinstance(request.message, MetadataRequest) else Answer.ControlledShutdown()
        )
        waiting = asyncio.create_task(peers.ask(2, MetadataRequest()))
        await peers.ask(2, Ask.ControlledShutdown(broker_id=1))
        assert not waiting.done()
        waiting.cancel()

    run(story)


def test_forget_fails_what_was_asked_even_when_the_image_has_lost_the_broker() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        peer.answer = lambda request: None
        asked = asyncio.create_task(peers.ask(2, MetadataRequest()))
        while not peer.seen:
            await asyncio.sleep(0.001)
        metadata.publish(metadata.image.without_broker(2))
        peers.forget(2)
        with pytest.raises(NetworkError, match="broker 2 is gone"):
            await asked

    run(story)


def test_what_is_no_answer_ends_the_connection() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        peer.answer = lambda request: None
        asked = asyncio.create_task(peers.ask(2, MetadataRequest()))
        while not peer.seen:
            await asyncio.sleep(0.001)
        peer.writers[0].write(b"\0\0\0\4\0\0\x7f\x7f")
        with pytest.raises(NetworkError, match="invalid answer"):
            await asked

    run(story)


def test_after_close_nothing_is_asked() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        peer.answer = lambda request: None
        asked = asyncio.create_task(peers.ask(2, MetadataRequest()))
        while not peer.seen:
            await asyncio.sleep(0.001)
        peers.close()
        with pytest.raises(NetworkError):
            await asked
        with pytest.raises(NetworkError):
            await peers.ask(2, MetadataRequest())

    run(story)


def test_a_connection_that_has_ended_is_told_before_the_loop_comes_to_it() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        told: list[int] = []
        peers.on_closed.append(told.append)
        here, there = socket.socketpair()
        with here:
            peers.watch(2, here.fileno())
            peers.check_connections()
            assert told == []
            there.close()
            peers.check_connections()
            peers.check_connections()  # one report is enough
            assert told == [2]
            peers.watch(2, here.fileno())
            peers.unwatch(2)
            peers.check_connections()
            assert told == [2]

    run(story)


def test_the_broker_whose_connection_is_lost_is_told_and_one_that_is_dropped_here_is_not() -> None:
    async def story(peer: Peer, peers: Peers, metadata: MetadataCache) -> None:
        told: list[int] = []
        peers.on_closed.append(told.append)
        await peers.ask(2, MetadataRequest())
        peer.hang_up()
        while not told:
            await asyncio.sleep(0.001)
        assert told == [2]
        await peers.ask(2, MetadataRequest())
        peers.forget(2)
        await asyncio.sleep(0)
        assert told == [2]

    run(story)
