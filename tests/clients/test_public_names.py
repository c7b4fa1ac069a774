"""All that kstore.clients takes, returns and raises can be imported from it, when asked for."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest
import typing_extensions

import kstore.clients as clients
import kstore.errors

CLIENTS = (
    "AIOAdminClient", "AIOConsumer", "AIOProducer", "AIOShareConsumer", "AdminClient", "Assignor",
    "Consumer", "ConsumerInterceptor", "Deliveries", "Producer", "ProducerInterceptor",
    "RebalanceListener", "ShareConsumer",
)  # fmt: skip


def methods(owner: Any) -> Iterator[tuple[str, Any]]:
    """The public functions of a class, and its constructor."""
    for name, found in inspect.getmembers(owner):
        function = found.fget if isinstance(found, property) else found
        if (not name.startswith("_") or name == "__init__") and inspect.isroutine(function):
            yield name, function


def kstore_types(hint: Any) -> Iterator[str]:
    """The names of kstore's types within a type."""
    for part in typing.get_args(hint):
        for inner in part if isinstance(part, list) else [part]:
            yield from kstore_types(inner)
    origin = typing.get_origin(hint) or hint
    if isinstance(origin, type) and origin.__module__.startswith("kstore"):
        yield origin.__name__


def test_every_public_name_is_there() -> None:
    assert len(set(clients.__all__)) == len(clients.__all__)
    for name in clients.__all__:
        found = getattr(clients, name)
        if isinstance(found, type):
            assert found.__name__ == name


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_method_takes_and_returns_can_be_imported(client: str) -> None:
    names: dict[str, Any] = {name: getattr(clients, name) for name in clients.__all__}
    names["pyarrow"] = pyarrow
    hidden = set()
    for method, function in methods(getattr(clients, client)):
        if not hasattr(function, "__annotations__"):
            continue
        given = names | {"Buffer": typing_extensions.Buffer}  # only type checkers import it
        for hint in typing.get_type_hints(function, localns=given).values():
            hidden |= {(method, name) for name in kstore_types(hint) if name not in names}
    assert hidden <= {("__init__", "ProducerBatch")}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_docstring_says_is_raised_can_be_imported(client: str) -> None:
    owner = getattr(clients, client)
    texts = [inspect.getdoc(owner) or ""]
    texts += [inspect.getdoc(function) or "" for _, function in methods(owner)]
    raised = {name for text in texts for name in re.findall(r"\b[A-Z]\w+Error\b", text)}
    assert [n for n in raised if not hasattr(builtins, n) and n not in clients.__all__] == []


def test_every_error_of_kafka_can_be_caught_by_its_name() -> None:
    errors = {
        name for name in kstore.errors.__all__ if isinstance(getattr(kstore.errors, name), type)
    }
    assert errors - set(clients.__all__) == set()
    assert issubclass(clients.CommitFailedError, clients.KafkaError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        clients.__getattr__("Nothing")


def test_importing_the_package_imports_no_client() -> None:
    program = (
        "import sys, kstore.clients;"
        "print(*sorted(n for n in sys.modules if n.startswith('kstore.')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["kstore.clients"]
