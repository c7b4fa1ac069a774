"""No handler changes its request: it creates another one (`Struct.replaced`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

API = Path(__file__).resolve().parents[3] / "broker" / "api"
CHANGING = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}


def writes(source: str) -> Iterator[int]:
    """The lines in which a function writes into what it got as a request, or a part of one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            given = {arg.arg for arg in arguments if _is_request(arg.annotation)}
            given |= _parts(node, given)
            yield from (line for each in ast.walk(node) for line in _writes(each, given))


def _is_request(annotation: ast.expr | None) -> bool:
    words = "" if annotation is None else ast.unparse(annotation)
    return "Request" in words.replace("RequestContext", "")


def _parts(function: ast.AST, given: set[str]) -> set[str]:
    """Names of rows of these: what loops go over, and what is taken out by an assignment."""
    found: set[str] = set()
    for _ in range(4):  # rows of rows
        for node in ast.walk(function):
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                target, value = node.target, node.iter
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
            else:
                continue
            if isinstance(target, ast.Name) and _root(value) in given | found:
                found.add(target.id)
    return found


def _root(node: ast.expr) -> str | None:
    """The name that a chain of attributes and indexes begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _writes(node: ast.AST, given: set[str]) -> Iterator[int]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call):
        of = node.func
        if isinstance(of, ast.Attribute) and of.attr in CHANGING:
            targets = [of.value] if isinstance(of.value, ast.Attribute) else []
        elif isinstance(of, ast.Name) and of.id == "setattr" and _root(node.args[0]) in given:
            yield node.lineno
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, ast.Attribute | ast.Subscript) and _root(each) in given:
                yield node.lineno


@pytest.mark.slow
def test_no_handler_writes_into_its_request() -> None:
    assert [
        f"{path.relative_to(API)}:{line}"
        for path in sorted(API.rglob("*.py"))
        for line in writes(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    "line",
    [
        "request.topics = []",
        "request.topics, others = split(request)",
        "request.members += [1]",
        "request.topics.append(1)",
        "request.topics[0] = 1",
        "del request.topics[0]",
        "setattr(request, name, 1)",
        "for topic in request.topics: topic.name = ''",
        "for topic in request.topics:\n  for row in topic.partitions: row.index = 1",
        "first = request.topics[0]; first.name = ''",
    ],
)
def test_each_kind_of_write_is_found(line: str) -> None:
    body = "\n".join(f" {each}" for each in line.split("\n"))
    assert list(writes(f"def f(broker, request: FetchRequest):\n{body}"))
    assert not list(writes(f"def f(broker, request: FetchResponse):\n{body}"))
