"""The clients' settings: Kafka's names, keywords, types, and words for what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstore.clients import Consumer, Producer
from kstore.config.client.configs import CLIENT_CONFIGS, NO_EFFECT, client_settings
from kstore.config.definition import ConfigError


def test_dotted_names_and_keywords_mean_the_same_and_keywords_win() -> None:
    settings = client_settings(
        "producer", {"linger.ms": "7", "acks": 1, "retries": 3}, {"acks": "all", "batch_size": 99}
    )
    assert settings["linger.ms"] == 7
    assert settings["acks"] == "all"
    assert settings["batch.size"] == 99
    assert settings.given == {"linger.ms", "acks", "batch.size", "retries"}


@pytest.mark.parametrize("servers", ["a:1,b:2", ["a:1", "b:2"], ("a:1", "b:2")])
def test_the_first_argument_may_be_servers(servers: Any) -> None:
    assert client_settings("consumer", servers)["bootstrap.servers"] == ("a:1", "b:2")


def test_every_default_is_filled_in_and_none_means_not_given() -> None:
    settings = client_settings("consumer", None, {"group_id": None, "client_id": None})
    assert set(settings) == set(CLIENT_CONFIGS["consumer"])
    assert settings["group.id"] is None
    assert settings["client.id"] == "kstore-consumer"
    assert settings["bootstrap.servers"] == ("localhost:9092",)
    assert not settings.given


@pytest.mark.parametrize(
    ("kind", "config", "keywords", "words"),
    [
        ("consumer", {"bootstrap.server": "x"}, {}, "did you mean bootstrap.servers?"),
        ("consumer", {}, {"group_idd": "x"}, "did you mean group_id?"),
        ("consumer", {"acks": "all"}, {}, "but of producer clients"),
        ("admin", {"nonsense": 1}, {}, "nonsense is not a setting of an admin client"),
        ("producer", {"acks": "2"}, {}, "acks .* one of all, -1, 0, 1"),
        ("producer", {"linger.ms": 1.5}, {}, "linger.ms .*integer"),
        ("producer", {"linger.ms": True}, {}, "linger.ms is True"),
        ("producer", {"enable.idempotence": "yes"}, {}, "true or false"),
        ("consumer", {"auto.offset.reset": "by_duration:1D"}, {}, "ISO 8601"),
        ("consumer", {"bootstrap.servers": []}, {}, "not empty"),
        ("consumer", {"bootstrap.servers": b"a:1"}, {}, "bootstrap.servers is b'a:1'; it must be"),
        ("consumer", {"bootstrap.servers": [5]}, {}, r"bootstrap.servers is \(5,\); it must be"),
        ("consumer", {"ssl.cipher.suites": {"a": 1}}, {}, "ssl.cipher.suites is {'a': 1}; it must"),
        ("consumer", {}, {"heartbeat_interval_ms": 0}, "at least 1"),
        ("consumer", {}, {"session_timeout_ms": -1}, "at least 1"),
        ("admin", {"sasl.password": 1234}, {}, r"^sasl.password is \[hidden\]; it must be text$"),
        ("admin", {"sasl.password": b"abc"}, {}, r"^sasl.password is \[hidden\]; it must be text$"),
        ("producer", {}, {"config_providers": str.encode}, "has no effect here: values are"),
    ],
)
def test_what_is_wrong_is_said(
    kind: Any, config: dict[str, Any], keywords: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        client_settings(kind, config, keywords)


@pytest.mark.parametrize("reset", ["earliest", "latest", "none", "by_duration:P1DT2H3M4.5S"])
def test_offset_resets(reset: str) -> None:
    assert client_settings("consumer", {"auto.offset.reset": reset})["auto.offset.reset"] == reset


def test_objects_go_through_where_java_has_classes() -> None:
    class Interceptor:
        pass

    seen = Interceptor()
    settings = client_settings(
        "producer", {"interceptor.classes": [seen]}, {"partitioner": lambda key, count: 0}
    )
    assert settings["interceptor.classes"] == (seen,)
    assert settings["partitioner.class"](b"", 3) == 0


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            lambda: Producer(interceptor_classes=[5]),
            "has 5: an interceptor needs on_send or on_ack",
        ),
        (lambda: Producer(interceptors=[5]), "has 5: an interceptor needs on_send or on_ack"),
        (lambda: Consumer(interceptor_classes=[5]), "has 5: an interceptor needs on_consume"),
        (lambda: Consumer(interceptor_classes="x"), "'x' is not package.module.Class"),
        (
            lambda: Producer(value_serializer="json"),
            "value.serializer is 'json'; it must be a call",
        ),
        (
            lambda: Consumer(key_deserializer="json"),
            "key.deserializer is 'json'; it must be a call",
        ),
    ],
)
def test_what_a_client_could_not_call_is_refused(made: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made()


def test_kafkas_settings_without_effect_are_taken_and_dropped() -> None:
    assert not set(NO_EFFECT) & {name for rows in CLIENT_CONFIGS.values() for name in rows}
    settings = client_settings("producer", {"enable.metrics.push": "true"})
    assert "enable.metrics.push" not in settings


def test_every_setting_is_explained_once() -> None:
    for rows in CLIENT_CONFIGS.values():
        for row in rows.values():
            assert row.documentation.endswith("."), row.name
            if row.default is not None:
                assert row.parse(row.format(row.default), "default") == row.default, row.name
