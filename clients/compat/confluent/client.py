"""The base of Producer, Consumer and AdminClient: settings, cluster metadata, close."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from kstore.clients.compat.confluent.error import raised_as
from kstore.clients.compat.confluent.events import Events
from kstore.clients.compat.confluent.metadata import ClusterMetadata, cluster_id, list_topics
from kstore.clients.compat.confluent.settings import Settings
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.loop_thread import LoopThread
from kstore.config.client.configs import ClientKind
from kstore.config.definition import ConfigError

__all__ = ["Client", "made"]

T = TypeVar("T")


def made(make: Callable[[Settings], T], settings: Settings) -> T:
    """kstore's client with these settings; raises confluent-kafka's errors for invalid ones."""
    try:
        return make(settings)
    except (ConfigError, ValueError) as error:
        raise raised_as(error) from None


class Client:
    """A client of kstore under confluent-kafka's names."""

    _CLOSED = "the client is closed"
    _CREATES_TOPICS = False
    """Whether a metadata request creates a missing topic, if brokers allow it."""
    _thread: LoopThread
    _cluster: ClusterClient
    _events: Events
    _is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        """Leave a with block."""
        raise NotImplementedError

    def _attach(
        self,
        kind: ClientKind,
        own: Mapping[str, Any],
        thread: LoopThread,
        cluster: ClusterClient,
        waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        self._thread, self._cluster = thread, cluster
        self._events = Events(own, kind, thread, cluster, waiting)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The brokers, and the partitions of a topic, or of all topics."""
        self._check()
        create = self._CREATES_TOPICS
        return list_topics(self._thread, self._cluster, topic, timeout, create=create)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The cluster's id."""
        self._check()
        return cluster_id(self._thread, self._cluster, timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """The user and password of later connections."""
        settings: Any = self._cluster.settings
        settings.update({"sasl.username": username, "sasl.password": password})

    def _check(self) -> None:
        if self._is_closed:
            raise RuntimeError(self._CLOSED)
