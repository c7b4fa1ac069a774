"""Sessions that are reauthenticated during requests (KIP-368), on a broker that the test delays:
all requests wait for the end of the reauthentication. Also clients that are refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstore.clients.io.cluster import ANY, ClusterClient
from kstore.clients.io.connection import BrokerConnection
from kstore.config.client.configs import client_settings
from kstore.errors import KafkaError, NetworkError, SaslAuthenticationFailedError
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kstore.protocol.security.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.reference.fake_broker import HANG_UP, FakeBroker

FAILED = 58
LONG_S = 60


class Renewing:
    """A broker with sessions of a few ms, whose second handshake waits for the test."""

    def __init__(self, broker: FakeBroker, second: Callable[[], Any]) -> None:
        self.broker = broker
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._second = second
        self._handshakes = 0
        broker.handlers |= {
            SaslHandshakeRequest: self._handshake,
            SaslAuthenticateRequest: self._authenticate,
            FindCoordinatorRequest: lambda _: FindCoordinatorResponse(),
        }

    def _handshake(self, _request: Any) -> Any:
        self._handshakes += 1
        if self._handshakes == 2:
            self.begun.set()
            assert self.may_end.wait(LONG_S)
        return SaslHandshakeResponse(mechanisms=["PLAIN"])

    def _authenticate(self, _request: Any) -> Any:
        if self._handshakes == 2:
            return self._second()
        return SaslAuthenticateResponse(session_lifetime_ms=20 if self._handshakes == 1 else 0)

    def names(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.broker.requests]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


def cluster_at(*brokers: FakeBroker) -> ClusterClient:
    """A client of alice's."""
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "bootstrap.servers": [broker.address for broker in brokers],
    }
    return ClusterClient(client_settings("admin", settings))


def asked_during_the_renewal(renewing: Renewing) -> object:
    """The answer, or the error, of a request that is sent while the session is renewed."""

    async def main() -> object:
        cluster = cluster_at(renewing.broker)
        connection: BrokerConnection = await cluster.connection(ANY)
        assert await asyncio.to_thread(renewing.begun.wait, LONG_S)
        answer = connection.send(FindCoordinatorRequest(), 3)
        assert connection.in_flight == 2
        renewing.may_end.set()
        try:
            async with asyncio.timeout(LONG_S):
                return await answer
        except KafkaError as error:
            return error
        finally:
            await cluster.close()

    return asyncio.run(main())


FIRST = ["SaslHandshake", "SaslAuthenticate"]


def test_requests_wait_for_the_end_of_a_renewal(broker: FakeBroker) -> None:
    renewing = Renewing(broker, SaslAuthenticateResponse)
    assert isinstance(asked_during_the_renewal(renewing), FindCoordinatorResponse)
    assert renewing.names() == [*FIRST, *FIRST, "FindCoordinator"]
    assert broker.connections == 1


def test_a_renewal_that_is_refused_fails_what_waits_and_ends_the_connection(
    broker: FakeBroker,
) -> None:
    refusal = SaslAuthenticateResponse(error_code=FAILED, error_message="no more")
    renewing = Renewing(broker, lambda: refusal)
    found = asked_during_the_renewal(renewing)
    assert isinstance(found, SaslAuthenticationFailedError)
    assert "no more" in str(found)
    assert renewing.names() == [*FIRST, *FIRST]


def test_a_connection_that_is_lost_meanwhile_fails_what_waits(broker: FakeBroker) -> None:
    renewing = Renewing(broker, lambda: HANG_UP)
    assert isinstance(asked_during_the_renewal(renewing), NetworkError)
    assert renewing.names() == [*FIRST, *FIRST]


def test_who_is_refused_by_one_broker_does_not_ask_the_next(broker: FakeBroker) -> None:
    """A retry would lock accounts, and would report a wrong password as a network error."""
    refusal = SaslAuthenticateResponse(error_code=FAILED, error_message="wrong")

    async def main() -> None:
        cluster = cluster_at(broker, other)
        with pytest.raises(SaslAuthenticationFailedError, match="wrong"):
            await cluster.connection(ANY)
        await cluster.close()

    with FakeBroker() as other:
        for each in (broker, other):
            each.handlers |= {
                SaslHandshakeRequest: lambda _: SaslHandshakeResponse(),
                SaslAuthenticateRequest: lambda _: refusal,
            }
        asyncio.run(main())
        assert broker.connections + other.connections == 1
