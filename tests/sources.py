"""The sources as the tests of the house rules read them: files, texts, syntax trees and imports. It
imports no module of them.
"""

from __future__ import annotations

import ast
import gc
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kstore", "broker", "clients", "pipeline", "pyspark_kstore", "tests", "bench", "docs")
PRODUCT = ("kstore/", "broker/", "clients/", "pipeline/", "pyspark_kstore/")
CODE = {".py", ".pyi", ".pyx", ".pxd", ".h"}
TEXT = CODE | {".md", ".toml", ".yml", ".xml", ".in", ".sh", ""}


@cache
def files() -> tuple[Path, ...]:
    """Every source file, once: the links kstore/broker, clients and pipeline are not followed."""
    found: list[Path] = []
    for folder in FOLDERS:
        for directory, names, entries in os.walk(ROOT / folder):
            names[:] = [name for name in names if not name.startswith((".", "__pycache__"))]
            found += [Path(directory, entry) for entry in entries]
    found += [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")]
    return tuple(sorted(path for path in found if path.suffix in TEXT))


def relative(path: Path) -> str:
    """The path as this file's tables and messages have it."""
    return path.relative_to(ROOT).as_posix()


def code(*suffixes: str, under: tuple[str, ...] = ("",)) -> list[Path]:
    """The files with these suffixes below these folders."""
    return [p for p in files() if p.suffix in suffixes and relative(p).startswith(under)]


@cache
def text(path: Path) -> str:
    """A file's content."""
    return path.read_text(encoding="utf-8")


_trees: dict[Path, ast.Module] = {}


def tree(path: Path) -> ast.Module:
    """A Python file's syntax tree."""
    if path not in _trees:
        _trees[path] = ast.parse(text(path), filename=str(path))
    return _trees[path]


def calls(path: Path) -> tuple[ast.Call, ...]:
    """Every call in a Python file."""
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, ast.Call))


def module_name(path: Path) -> str:
    """The dotted name that a file is imported by: broker/x.py is kstore.broker.x."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] in {"broker", "clients", "pipeline"}:
        parts.insert(0, "kstore")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by name; a .pyx counts as its compiled module."""
    return {module_name(p): p for p in code(".py", ".pyx", under=PRODUCT)}


class Import:
    """One import: the module, the line, and whether it runs when the importer is loaded."""

    def __init__(self, name: str, line: int, *, at_load: bool) -> None:
        self.name = name
        self.line = line
        self.at_load = at_load


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """The imports of a file; a name imported from a package counts as its submodule if there is
    one.
    """
    if path.suffix == ".py":
        return tuple(_python_imports(path))
    return tuple(_cython_imports(path))


def _python_imports(path: Path) -> Iterator[Import]:
    for node, at_load in statements(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_load=at_load)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if inner in modules() else node.module
                yield Import(name, node.lineno, at_load=at_load)


@cache
def statements(path: Path) -> tuple[tuple[ast.stmt, bool], ...]:
    """Every statement of a Python file, and whether it runs when the module is loaded."""
    return tuple(_within(tree(path), True))


def _within(above: ast.AST, at_load: bool) -> Iterator[tuple[ast.stmt, bool]]:
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        for node in getattr(above, name, ()):
            if isinstance(node, ast.stmt):
                yield node, at_load
            is_guard = (
                at_load and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            )
            is_later = is_guard or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _within(node, at_load and not is_later)


_CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+c?import\s+\(?([\w, ]*)|c?import\s+([\w.]+))", re.MULTILINE
)


def _cython_imports(path: Path) -> Iterator[Import]:
    source = text(path)
    for match in _CYTHON_IMPORT.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        package = match[1] or match[3]
        names = [n.split(" as ")[0].strip() for n in (match[2] or "").split(",")]
        inner = [f"{package}.{n}" for n in names if f"{package}.{n}" in modules()]
        for name in inner or [package]:
            yield Import(name, line, at_load=not match[0].startswith(" "))


def report(problems: list[str]) -> None:
    """Fail with one line per problem."""
    assert not problems, "\n" + "\n".join(problems)


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """The trees of all files are millions of objects. The garbage collector ignores them, and they
    are freed after a module's last test. The imports in them stay: the next module on this worker
    (tests/order.py) needs no trees for them.
    """
    gc.disable()
    yield
    for path in _trees:
        imports(path)
    _trees.clear()
    statements.cache_clear()
    gc.enable()
