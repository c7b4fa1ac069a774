"""Every public name of confluent-kafka is in kstore's module, except those listed here."""

from __future__ import annotations

import importlib
import inspect
from enum import Enum
from typing import Any

import pytest

NOT_HERE = {
    "ShareConsumer": "kstore has no share consumer",
    "DeserializingShareConsumer": "the same",
    "AcknowledgeType": "of share consumers",
    "Messages": "of share consumers",
}
SUBMODULES = ("", ".admin", ".serialization", ".error")
ARE_TYPING = {"Any", "Dict", "List", "Optional", "Set", "Tuple", "Union", "Callable", "TypeVar"}
ARE_TYPING |= {"Enum", "HeadersType"}
VALUES = {"TopicPartition": ("t",), "NewTopic": ("t",), "NewPartitions": ("t", 2)}
"""Whose parts are attributes of their instances: with what they are made."""
BUILDERS = {"SerializerBuilder", "DeserializerBuilder"}
"""By which confluent-kafka makes serializers from settings as text."""


def public_names(module: Any) -> set[str]:
    """What a module has for its users."""
    return {
        name
        for name, found in vars(module).items()
        if name[0] != "_" and not inspect.ismodule(found) and name not in ARE_TYPING | BUILDERS
    }


@pytest.mark.parametrize("submodule", SUBMODULES)
def test_every_name_is_there(submodule: str) -> None:
    theirs = importlib.import_module(f"confluent_kafka{submodule}")
    ours = importlib.import_module(f"kstore.clients.compat.confluent{submodule}")
    names = {name for name in public_names(theirs) if name[0].isupper()} - set(NOT_HERE)
    if submodule == ".error":
        names.discard("Message")  # which it imports for its own use
    assert {name for name in names if not hasattr(ours, name)} == set()


@pytest.mark.parametrize("submodule", ["", ".admin", ".serialization"])
def test_every_method_and_constant_is_there(submodule: str) -> None:
    theirs = importlib.import_module(f"confluent_kafka{submodule}")
    ours = importlib.import_module(f"kstore.clients.compat.confluent{submodule}")
    missing = set()
    for name in public_names(theirs) - set(NOT_HERE):
        found, mine = getattr(theirs, name), getattr(ours, name, None)
        if isinstance(found, type) and issubclass(found, Enum) and name != "Enum":
            assert {row.name: row.value for row in found} == {row.name: row.value for row in mine}
        elif isinstance(found, type) and mine is not None:
            made = mine(*VALUES[name]) if name in VALUES else mine
            parts = {part for part in dir(found) if part[0] != "_"}
            missing |= {f"{name}.{part}" for part in parts if not hasattr(made, part)}
        elif isinstance(found, int):
            assert mine == found, name
    assert missing <= {
        "Serializer.set_cluster_id_resolver", "Deserializer.set_cluster_id_resolver",
        "Serializer.close", "Deserializer.close",
    } | {
        f"{kind}{what}.{part}"
        for kind in ("Double", "Integer", "String")
        for what in ("Serializer", "Deserializer")
        for part in ("set_cluster_id_resolver", "close")
    }  # fmt: skip


def test_every_error_has_its_number() -> None:
    from confluent_kafka import KafkaError as Theirs

    from kstore.clients.compat.confluent import KafkaError as Ours

    names = [name for name in dir(Theirs) if isinstance(getattr(Theirs, name), int)]
    assert len(names) > 150
    for name in names:
        number = getattr(Theirs, name)
        assert getattr(Ours, name) == number, name
        assert Ours(number).name() == Theirs(number).name()


def test_errors_compare_and_print_alike() -> None:
    import confluent_kafka

    from kstore.clients.compat import confluent

    for module in (confluent_kafka, confluent):
        error = module.KafkaError(-185, "why", fatal=True)
        assert error == module.KafkaError._TIMED_OUT == error.code()
        assert error != 3
        assert error < 0
        assert hash(error) == hash(module.KafkaError(-185))
        assert (error.name(), error.str(), error.fatal(), error.retriable()) == (
            "_TIMED_OUT", "why", True, False,
        )  # fmt: skip
        assert str(error) == 'KafkaError{FATAL,code=_TIMED_OUT,val=-185,str="why"}'
        assert str(module.KafkaException(error)) == str(error)
        assert module.KafkaError(99_999).name() == "ERR_99999?"
        one, two = module.TopicPartition("a", 1, 5), module.TopicPartition("a", 1, 9)
        assert one == two
        assert hash(one) == hash(two)
        assert one < module.TopicPartition("b", 0)
        assert repr(one) == (
            "TopicPartition{topic=a,partition=1,offset=5,leader_epoch=None,error=None}"
        )
        assert str(module.Uuid(1, -1)) == "AAAAAAAAAAH//////////w"
