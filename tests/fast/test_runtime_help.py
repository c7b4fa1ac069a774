"""What `help()` shows of the public names that are compiled: the docstrings of their stubs."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ("kstore.log", "kstore.record", "kstore.clients")


def compiled() -> dict[str, Any]:
    """The compiled classes and functions among the public names, and the classes' bases."""
    found = {}
    for package in PUBLIC:
        module = import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            for each in getattr(thing, "__mro__", (thing,)):
                home = getattr(each, "__module__", None) or ""
                if home.startswith("kstore._fast."):
                    found[f"{home}.{each.__name__}"] = each
    return found


def documented(nodes: list[ast.stmt]) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """The definitions of a stub that have a docstring, without private ones."""
    return {
        node.name: node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node)
    }


@pytest.mark.parametrize("name", sorted(compiled()))
def test_help_shows_the_docstrings_of_the_stub(name: str) -> None:
    thing = compiled()[name]
    module, _, own_name = name.rpartition(".")
    stub = ast.parse((ROOT / (module.replace(".", "/") + ".pyi")).read_text())
    node = documented(stub.body)[own_name]
    assert shown(thing) == ast.get_docstring(node)
    if isinstance(node, ast.ClassDef):
        for method, inner in documented(node.body).items():
            assert shown(vars(thing)[method]) == ast.get_docstring(inner), method


def shown(thing: Any) -> str:
    """A docstring without the signature that Cython adds."""
    return inspect.getdoc(thing) or ""


def test_help_shows_the_parameters_of_an_append() -> None:
    from kstore.log import Log

    assert str(inspect.signature(Log.append)) == (
        "(self, /, value, key=None, timestamp=None, headers=(), *, expected_offset=None)"
    )
