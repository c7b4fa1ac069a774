"""The settings of a listener: at the start, at run time, and when a change is only validated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstore.broker.runtime.metadata.listener_settings import ListenerSettings
from kstore.config import BrokerConfig, ConfigError

NAME, OWN = "max.connections", "listener.name.plaintext.max.connections"


def settings(configs: Any = None, **given: str) -> ListenerSettings:
    """``configs``: None while the store is not open."""
    overrides = {"log.dirs": "unused", "node.id": "7", NAME: "5"} | given
    return ListenerSettings(BrokerConfig.load(overrides=overrides, environ={}), lambda: configs)


def configs(mine: dict[str, str], cluster: dict[str, str]) -> Any:
    return SimpleNamespace(brokers={"7": mine}, cluster=cluster)


def value(found: ListenerSettings, **how: Any) -> Any:
    return found.of("PLAINTEXT", [NAME], **how)[NAME]


def test_before_the_store_is_open_the_start_decides() -> None:
    assert value(settings()) == 5
    assert value(settings(), own=True) is None
    assert value(settings(**{OWN: "3"})) == value(settings(**{OWN: "3"}), own=True) == 3
    assert settings().of_broker is None


def test_what_is_set_at_run_time_comes_first_and_this_brokers_before_the_clusters() -> None:
    assert value(settings(configs({}, {OWN: "2"}), **{OWN: "3"})) == 2
    both = settings(configs({OWN: "1"}, {OWN: "2"}))
    assert value(both) == value(both, own=True) == 1
    assert both.of_broker == {OWN: "1"}


def test_what_is_asked_for_is_looked_at_instead() -> None:
    found = settings(configs({OWN: "1"}, {}))
    assert value(found, requested={}) == 5
    assert value(found, requested={NAME: "9"}) == 9
    assert value(found, requested={OWN: "4", NAME: "9"}) == 4


def test_a_bad_value_in_the_store_is_refused() -> None:
    with pytest.raises(ConfigError):
        value(settings(configs({OWN: "many"}, {})))
