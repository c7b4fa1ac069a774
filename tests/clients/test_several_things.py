"""Methods that take several things refuse one thing, and a mapping that they do not mean. The
methods are found by a walk over what users import, so a new one is tested from its first day.
"""

from __future__ import annotations

import asyncio
import builtins
import collections.abc
import inspect
import re
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.clients
import kstore.clients.admin
import kstore.items
import kstore.log
from kstore.clients import (
    AdminClient,
    AIOAdminClient,
    AIOConsumer,
    AIOProducer,
    AIOShareConsumer,
    Consumer,
    NewTopic,
    Producer,
    ShareConsumer,
)
from kstore.clients.admin import NewPartitions
from kstore.items import Listed
from kstore.log.cursors.cursor import Cursor
from kstore.log.queue.queue import Queue
from kstore.log.transactions.transaction import Transaction
from kstore.types import TopicPartition

NOBODY = "127.0.0.1:1"
SEVERAL = (
    collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection,
    collections.abc.Set, collections.abc.Iterator, collections.abc.ValuesView, Listed, list, set,
    frozenset,
)  # fmt: skip
# What users import that has methods for several things, and no user calls these.
NOT_CALLED = {
    "Assignor": "users write it",
    "RebalanceListener": "users write it",
    "ConsumerInterceptor": "users write it",
    "ProducerInterceptor": "users write it",
    "RecordSet": "consumers make it",
    "Deliveries": "send_many makes it",
    "Results": "the admin client makes it",
    "Delivery": "send makes it",
}
# Methods for which a class has another one.
INNER = {("Producer", "append_many"), ("Producer", "append_columns")}
CLASSES: tuple[type[Any], ...] = (
    AIOAdminClient, AIOConsumer, AIOProducer, AIOShareConsumer, AdminClient, Consumer, Cursor,
    Producer, ShareConsumer, kstore.log.Log, kstore.log.LogDir, Queue, Transaction,
)  # fmt: skip
WRONG: dict[str, Any] = {
    "str": "xyz", "bytes": b"xyz", "a mapping": {"x": {"y": 1}},
    "one partition": TopicPartition("x", 0), "a number": 7, "a list": [["x", 0, 0]],
}  # fmt: skip


def _stub(module: str) -> dict[str, Any]:
    """The names of a Cython module's stub, since the module itself has no annotations."""
    path = Path(kstore.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".pyi")
    names: dict[str, Any] = {"__name__": module}
    source = "from __future__ import annotations\n" + path.read_text("utf-8")
    exec(compile(source, str(path), "exec"), names)
    return names


def _function(owner: type[Any], name: str) -> tuple[Any, dict[str, Any]]:
    for base in owner.__mro__:
        if name in vars(base):
            function = vars(base)[name]
            if isinstance(function, types.FunctionType):
                return inspect.unwrap(function), {}
            if base.__module__.startswith("kstore._fast"):
                names = _stub(base.__module__)
                found = vars(names[base.__name__]).get(name)
                return (found, names) if isinstance(found, types.FunctionType) else (None, {})
    return None, {}


class _Names(dict[str, Any]):
    """What annotations name; what only type checkers import is object."""

    def __missing__(self, name: str) -> Any:
        return object


def _parts(hint: Any) -> Iterator[Any]:
    """The members of a union."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for part in typing.get_args(hint):
            yield from _parts(part)
    else:
        yield typing.get_origin(hint) or hint


def _public(owner: type[Any]) -> Iterator[tuple[str, str, set[Any], bool]]:
    """Method, parameter, the kinds that it means, and whether it is one of *arguments."""
    for name in dir(owner):
        if name.startswith("_") and name != "__init__":
            continue
        function, names = _function(owner, name)
        if function is None or (owner.__name__, name) in INNER:
            continue
        names = _Names({**vars(builtins), **vars(kstore.items), **function.__globals__, **names})
        for parameter in inspect.signature(function).parameters.values():
            hint = parameter.annotation
            if parameter.kind is inspect.Parameter.VAR_KEYWORD or hint is inspect.Parameter.empty:
                continue
            kinds = set(_parts(eval(hint, names) if isinstance(hint, str) else hint))
            many = parameter.kind is inspect.Parameter.VAR_POSITIONAL and object not in kinds
            if many or kinds & {*SEVERAL, collections.abc.Mapping}:
                yield name, parameter.name, kinds, many


def _refused(kinds: set[Any], many: bool) -> list[str]:
    """Which of WRONG a parameter must refuse."""
    if many:
        return ["bytes", "a number", "a list"] + ([] if str in kinds else ["str", "a mapping"])
    wrong = ["bytes", "one partition", "a number"]
    if str not in kinds:
        wrong.append("str")
    if collections.abc.Mapping not in kinds:
        wrong.append("a mapping")
    elif not kinds & set(SEVERAL):
        wrong.append("a list")
    return wrong


def _cases(owner: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Method, parameter, and which of WRONG."""
    for method, parameter, kinds, many in _public(owner):
        for wrong in _refused(kinds, many):
            yield method, parameter, wrong


FILLERS: dict[str, Any] = {
    "topic": "x", "name": "x", "group_id": "x", "base_offset": 0, "now_ms": 0, "value": b"x",
    "values": [b"x"], "resources": [], "group_metadata": None, "total": 2,
}  # fmt: skip


def _call(target: Callable[..., Any], parameter: str, wrong: Any) -> Any:
    """Call with the wrong argument, and with the other required arguments."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    for each in inspect.signature(target).parameters.values():
        if each.name != parameter:
            if each.name in FILLERS:
                named[each.name] = FILLERS[each.name]
        elif each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            given = [*([NOBODY] if parameter == "topics" else []), wrong]
        else:
            named[parameter] = wrong
    return target(*given, **named)


def _made(owner: type[Any], folder: Path) -> Any:
    if owner in (kstore.log.Log, Cursor):
        log = kstore.open_log(folder)
        return log if owner is kstore.log.Log else log.cursor("x")
    if owner is kstore.log.LogDir:
        return kstore.open_log_dir(folder)
    extra = {"transactional_id": "x"} if owner in (Producer, AIOProducer) else {}
    readers = (Consumer, AIOConsumer, ShareConsumer, AIOShareConsumer)
    extra |= {"group_id": "x"} if owner in readers else {}
    return owner(NOBODY, **extra)


async def _outcome(owner: type[Any], method: str, parameter: str, wrong: Any, folder: Path) -> None:
    if owner is Transaction:
        with kstore.open_log_dir(folder) as directory, directory.transaction() as transaction:
            function = partial(getattr(transaction, method), directory.log("x", 0))
            _call(function, parameter, wrong)
        return
    if owner is Queue:
        with kstore.open_log(folder) as log:
            _call(getattr(log.queue("x"), method), parameter, wrong)
        return
    if method == "__init__":
        _call(owner, parameter, wrong)
        return
    made = _made(owner, folder)
    try:
        answer = _call(getattr(made, method), parameter, wrong)
        if inspect.isawaitable(answer):
            await answer
    finally:
        if owner not in (Cursor, Producer, AIOProducer, AIOConsumer, Consumer):
            closing = made.close()
        elif owner in (Producer, AIOProducer):
            closing = made.close(0)
        elif owner is Cursor:
            closing = made._log.close()
        else:
            closing = made.close(0)
        if inspect.isawaitable(closing):
            await closing


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("owner", CLASSES, ids=lambda owner: owner.__name__)
def test_one_thing_in_place_of_several_is_refused_with_a_sentence(
    owner: type[Any], tmp_path: Path
) -> None:
    others: dict[str, str] = {}
    for number, (method, parameter, wrong) in enumerate(_cases(owner)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            asyncio.run(_outcome(owner, method, parameter, WRONG[wrong], folder))
            told = "not refused"
        except Exception as error:  # noqa: BLE001 - all that are wrong are listed
            told = f"{type(error).__name__}: {error}"
        if not re.match(r"TypeError: .*pass (a (list|dict) of|TopicPartition|the|its)", told, re.S):
            others[f"{owner.__name__}.{method}({parameter}={wrong})"] = told
    assert not others


def test_the_walk_knows_every_class_that_users_import() -> None:
    known = {owner.__name__ for owner in CLASSES} | set(NOT_CALLED)
    left = []
    for face in (kstore.clients, kstore.clients.admin, kstore.log):
        for name in face.__all__:
            found = getattr(face, name)
            is_data = hasattr(found, "__dataclass_fields__") or hasattr(found, "_fields")
            if not isinstance(found, type) or is_data or issubclass(found, BaseException):
                continue
            if name not in known and any(_public(found)):
                left.append(name)
    assert left == []


def test_the_walk_finds_what_it_is_for() -> None:
    found = {(owner.__name__, method) for owner in CLASSES for method, *_ in _public(owner)}
    assert ("AdminClient", "delete_topics") in found
    assert ("Producer", "send") in found
    assert ("Producer", "send_many") in found
    assert ("Consumer", "subscribe") in found
    assert ("Log", "append_many") in found
    assert ("LogDir", "delete") in found
    assert len(found) > 70


def test_the_sentence_names_the_thing_and_what_to_pass() -> None:
    with AdminClient(NOBODY) as admin, pytest.raises(TypeError) as told:
        admin.delete_topics("xyz")  # type: ignore[arg-type]
    assert str(told.value) == (
        "topics is the str 'xyz': pass a list of topic names or ids, as in topics=[...]"
    )


@pytest.mark.parametrize(
    "topic",
    [
        NewTopic("x", replicas={0: "12"}),  # type: ignore[dict-item]
        NewTopic("x", configs="a=b"),  # type: ignore[arg-type]
        NewTopic("x", replicas=[[1]]),  # type: ignore[arg-type]
    ],
)
def test_what_stands_inside_of_a_new_topic_is_looked_at_too(topic: NewTopic) -> None:
    with AdminClient(NOBODY) as admin, pytest.raises(TypeError, match="pass a"):
        admin.create_topics([topic])


def test_what_stands_inside_of_other_requests_is_looked_at_too() -> None:
    tp = TopicPartition("x", 0)
    with AdminClient(NOBODY) as admin:
        with pytest.raises(TypeError, match="pass a list of broker ids"):
            admin.alter_partition_reassignments({tp: "12"})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="pass a list of lists of broker ids"):
            admin.create_partitions({"x": NewPartitions(2, "1")})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="pass a dict of topic name -> number of partitions"):
            admin.create_topics({"x": "6"})  # type: ignore[dict-item]


MISUSES = """
from kstore.clients import AdminClient, AIOAdminClient, Consumer, NewTopic, Producer
from kstore.log import Log
from kstore.types import TopicPartition


def wrong(
    admin: AdminClient, aio: AIOAdminClient, consumer: Consumer, producer: Producer, log: Log
) -> None:
    admin.create_topics("xyz")  # wrong
    admin.create_topics({"orders": "6"})  # wrong
    admin.delete_topics("xyz")  # wrong
    admin.delete_topics(b"xyz")  # wrong
    admin.delete_topics({"x": 1})  # wrong
    aio.delete_topics("xyz")  # wrong
    admin.delete_groups("xyz")  # wrong
    admin.describe_topics("xyz")  # wrong
    admin.list_groups(states="Empty")  # wrong
    admin.delete_acls("x")  # wrong
    consumer.subscribe("orders")  # wrong
    consumer.subscribe({"orders": 1})  # wrong
    consumer.assign(TopicPartition("orders", 0))  # wrong
    consumer.committed("orders")  # wrong
    producer.send_many("orders", b"abc")  # wrong
    producer.send_many("orders", {b"a": b"b"})  # wrong
    producer.send("orders", b"x", headers="abc")  # wrong
    log.append_many(b"abc")  # wrong
    log.append_many({b"a": b"b"})  # wrong


def right(admin: AdminClient, consumer: Consumer, producer: Producer, log: Log) -> None:
    names = {"a": 1}
    admin.create_topics(["a", NewTopic("b")])
    admin.create_topics([NewTopic("b", replicas={0: [1, 2]})])
    admin.create_topics({"orders": 6})
    admin.delete_topics(["a"])
    admin.delete_topics(("a", "b"))
    admin.delete_topics({"a"})
    admin.delete_topics(frozenset(["a"]))
    admin.delete_topics(names.keys())
    admin.delete_topics(name for name in names)
    admin.delete_topics(map(str, names))
    admin.delete_topics(sorted(names))
    consumer.subscribe(["a"])
    consumer.assign([TopicPartition("a", 0)])
    consumer.assign(TopicPartition("a", n) for n in range(3))
    producer.send_many("orders", [b"a", None])
    producer.send_many("orders", (b"a", b"b"), keys=[b"k", b"k"])
    producer.send("orders", b"x", headers=[("a", b"1")])
    producer.send("orders", b"x", headers={"a": b"1"})
    log.append_many([b"a", (b"k", b"v")])
    log.append(b"a", headers={"a": b"1"})
"""


@pytest.mark.thorough  # mypy reads all of kstore; `make test` has the refusals at run time
@pytest.mark.slow
def test_mypy_refuses_the_same(tmp_path: Path) -> None:
    path = tmp_path / "uses.py"
    path.write_text(MISUSES, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
         str(path)],
        capture_output=True, text=True, check=False, cwd=Path(kstore.__file__).parents[1],
    )  # fmt: skip
    expected = [n for n, line in enumerate(MISUSES.split("\n"), 1) if line.endswith("# wrong")]
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert sorted({int(line.split(":")[1]) for line in errors}) == expected, (
        done.stdout + done.stderr
    )
