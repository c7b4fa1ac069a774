"""Decisions use only values: no parameter and no field in broker/state is a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

STATE = Path(__file__).resolve().parents[3] / "broker" / "state"
GIVEN_FUNCTIONS = {
    "replication/fetch_session_cache.py": "a random number for each session",
    "work.py": "what is done with each item, by whoever gives it",
    "security/authorizer.py": "the audit log, which those who ask it call",
}
"""State that is given a function all the same, and what for."""


def given_functions(source: str) -> list[int]:
    """The lines with a function's type for a public parameter or field, or after a name."""
    found = _given(ast.parse(source))
    return [node.lineno for node in found if "Callable" in ast.unparse(node)]


def _given(module: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and (node.name[0] != "_" or node.name[:2] == "__"):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (each.annotation for each in arguments if each.annotation is not None)
        elif isinstance(node, ast.ClassDef):
            yield from (each.annotation for each in node.body if isinstance(each, ast.AnnAssign))
    for node in module.body:
        if isinstance(node, ast.Assign):
            yield node.value
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            yield node.value or node.annotation


def test_state_is_given_values() -> None:
    found = {
        path.relative_to(STATE).as_posix()
        for path in STATE.rglob("*.py")
        if given_functions(path.read_text(encoding="utf-8"))
    }
    assert found == set(GIVEN_FUNCTIONS)


@pytest.mark.parametrize(
    "source",
    [
        "def decide(state, now: Callable[[], int]): ...",
        "class Context(NamedTuple):\n    new_id: Callable[[], str]",
        "class Cache:\n    def __init__(self, draw: Callable[[], int]): ...",
        "NewId = Callable[[], int]",
        "NewId: TypeAlias = Callable[[], int]",
    ],
)
def test_each_form_is_found(source: str) -> None:
    assert given_functions(source)
    assert not given_functions(
        source.replace("Callable[[], int]", "int").replace("Callable[[], str]", "str")
    )
