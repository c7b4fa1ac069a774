"""A broker for all tests; every test runs with confluent-kafka and with kstore's module."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.kstore_broker import KstoreBroker

_numbers = itertools.count(1)
MODULES = {"confluent-kafka": "confluent_kafka", "kstore": "kstore.clients.compat.confluent"}


class Library:
    """A module of that API with its submodules, and the broker's address."""

    def __init__(self, module: str, bootstrap: str) -> None:
        self.name, self.bootstrap = module, bootstrap
        self.root: Any = importlib.import_module(module)
        self.admin: Any = importlib.import_module(f"{module}.admin")
        self.serialization: Any = importlib.import_module(f"{module}.serialization")
        self.error: Any = importlib.import_module(f"{module}.error")

    def new_name(self) -> str:
        return f"c{next(_numbers)}"

    def config(self, **more: Any) -> dict[str, Any]:
        """Settings with the broker's address."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.bootstrap, **named}

    def client(self) -> Any:
        return self.admin.AdminClient(self.config())

    def new_topic(self, partitions: int = 1, name: str = "") -> str:
        name = name or self.new_name()
        client = self.client()
        client.create_topics([self.admin.NewTopic(name, partitions, 1)])[name].result(60)
        return name

    def consumer(self, group: str, **more: Any) -> Any:
        """A consumer that starts at the beginning."""
        settings = {"group_id": group, "auto_offset_reset": "earliest"} | more
        return self.root.Consumer(self.config(**settings))

    def filled(self, values: list[bytes], partition: int = 0) -> str:
        """A topic of one partition with these values."""
        topic = self.new_topic()
        producer = self.root.Producer(self.config())
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(60) == 0
        return topic


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KstoreBroker]:
    """One broker, whose classic groups form at once."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with KstoreBroker(tmp_path_factory.mktemp("confluent"), overrides=settings) as running:
        yield running


@pytest.fixture(params=sorted(MODULES))
def library(request: pytest.FixtureRequest, broker: KstoreBroker) -> Library:
    return Library(MODULES[request.param], broker.bootstrap)
