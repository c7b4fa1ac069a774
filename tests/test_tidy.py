"""The house rules as tests: sizes, names, docstrings, and what a file may contain. test_rooms.py
has the rules of structure.

Each test reads the sources as text or syntax trees and imports none of them. A table lists the
limits that are exceeded today, with the present value: a value may only shrink, and an entry that
is no longer needed fails the test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import (
    CODE,
    PRODUCT,
    ROOT,
    code,
    files,
    imports,
    relative,
    report,
    statements,
    text,
    tree,
)
from tests.sources import trees as trees  # a fixture

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

# What exceeds a limit today: path or path::function -> its lines. Entries only shrink or disappear.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
MACHINE_PATHS = re.compile(r"(?<![\w.$}~-])/(?:" + "|".join(("root", "work", "home")) + r")/")
REGISTRY_HOSTS = re.compile(
    r"\b(?:pypi\.(?:org|python)|files\.python"
    + r"hosted|repo\d?\.maven|registry\.npm"
    + r"js|deb\.debian)\b"
)
MACHINE_WORDS = tuple(f"/{folder}/" for folder in ("root", "work", "home"))
REGISTRY_WORDS = ("pypi.", "files.python", ".maven", "registry.npm", "deb.deb")
"""A file without these words can't match: to look for words is much faster."""


def test_what_tests_share_is_used_by_a_test() -> None:
    used: set[str] = set()
    for path in code(".py", under=("tests/", "bench/")):
        used |= {i.name for i in imports(path)} | set(_from_packages(path))
        used |= {f"{name}.py" for name in re.findall(r"\b(\w+)\.py", text(path))}
    problems = []
    for path in code(".py", under=("tests/",)):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        is_collected = path.name.startswith("test_") or path.name in {"conftest.py", "__init__.py"}
        runs_alone = '__name__ == "__main__"' in text(path)
        is_used = name in used or path.name in used
        if not is_collected and not runs_alone and not is_used:
            problems.append(f"{relative(path)} is used by no test")
    report(problems)


def _from_packages(path: Path) -> Iterator[str]:
    """The names that a file imports from another; some of them are modules."""
    for node, _ in statements(path):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def check_ratchet(found: dict[str, int], known: dict[str, int], limit: int, what: str) -> None:
    """Compare the values over the limit with the table, both ways."""
    problems = [
        f"{key} has {lines} lines; {what} may have {known.get(key, limit)}"
        for key, lines in found.items() if lines > known.get(key, limit)
    ]  # fmt: skip
    problems += [
        f"{key} has {found.get(key, 'few enough')} lines now: lower or remove its entry of {lines}"
        for key, lines in known.items() if found.get(key, 0) < lines
    ]  # fmt: skip
    report(problems)


def test_files_are_short() -> None:
    over = {relative(p): text(p).count("\n") for p in code(*CODE)}
    over = {key: lines for key, lines in over.items() if lines > MAX_FILE_LINES}
    check_ratchet(over, LONG_FILES, MAX_FILE_LINES, "a file")


def test_functions_are_short() -> None:
    over: dict[str, int] = {}
    for path in code(".py", ".pyx", ".pxd"):
        lengths = _python_functions(path) if path.suffix == ".py" else _cython_functions(path)
        for name, lines in lengths:
            if lines > MAX_FUNCTION_LINES:
                over[f"{relative(path)}::{name}"] = lines
    check_ratchet(over, LONG_FUNCTIONS, MAX_FUNCTION_LINES, "a function")


def _python_functions(path: Path) -> Iterator[tuple[str, int]]:
    for node, _ in statements(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield node.name, node.end_lineno - node.lineno + 1


_CYTHON_DEF = re.compile(
    r"^( *)(?:async )?(?:def|cdef|cpdef)\b(?! class| enum| struct| extern)[^=\n]*?(\w+)\("
)


def _cython_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Measure functions by indentation: a function ends at the next line that is not indented
    deeper than its def.
    """
    lines = text(path).splitlines()
    for start, line in enumerate(lines):
        match = _CYTHON_DEF.match(line)
        if not match:
            continue
        indent, body_seen, end = len(match[1]), False, start
        for at in range(start + 1, len(lines)):
            here = lines[at]
            if not here.strip():
                continue
            depth = len(here) - len(here.lstrip())
            closes_signature = not body_seen and here.lstrip().startswith(")")
            if depth <= indent and not closes_signature:
                break
            body_seen = body_seen or not here.rstrip().endswith(",")
            end = at
        yield match[2], end - start + 1


def test_lines_fit_in_100_columns() -> None:
    """A checker's mark at the end of a line does not count."""
    mark = re.compile(r"\s+# (?:type: ignore|noqa).*$")
    report([
        f"{relative(path)}:{number} has {len(line)} columns"
        for path in code(*CODE) for number, line in enumerate(text(path).splitlines(), 1)
        if len(line) > MAX_COLUMNS and len(mark.sub("", line)) > MAX_COLUMNS
    ])  # fmt: skip


def test_no_bare_except() -> None:
    bare = re.compile(r"^\s*except\s*:", re.MULTILINE)
    report([
        f"{relative(path)}:{text(path).count(chr(10), 0, match.start() + 1) + 1} has a bare except"
        for path in code(".py", ".pyx") for match in bare.finditer(text(path))
    ])  # fmt: skip


def test_every_file_opens_with_what_it_is() -> None:
    problems = [
        f"{relative(p)} has no docstring"
        for p in code(".py", ".pyi")
        if not ast.get_docstring(tree(p))
    ]
    opens = re.compile(r'\A(?:#[^\n]*\n)*\s*"""|\A#(?! cython:)[^\n]*\w')
    directives = re.compile(r"\A(?:#\s*(?:cython|distutils):[^\n]*\n)+")
    for path in code(".pyx", ".pxd"):
        if not opens.match(directives.sub("", text(path))):
            problems.append(f"{relative(path)} does not open with what it is")
    report(problems)


def test_every_public_name_has_a_docstring() -> None:
    report([
        f"{relative(path)}:{node.lineno} {node.name} has no docstring"
        for path in code(".py", ".pyi", under=PRODUCT) for node in _public(tree(path))
        if not ast.get_docstring(node)
    ])  # fmt: skip


def _public(
    parent: ast.Module | ast.ClassDef,
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield public classes, functions and methods; of properties and overloads the first form."""
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        marks = {ast.unparse(d).rpartition(".")[2] for d in node.decorator_list}
        if node.name.startswith("_") or marks & {"setter", "deleter", "overload", "override"}:
            continue
        is_stub = len(node.body) == 1 and ast.unparse(node.body[0]) == "..."
        if not (is_stub and isinstance(parent, ast.ClassDef) and "Protocol" in ast.dump(parent)):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _public(node)


def test_every_cython_module_has_its_types() -> None:
    report([
        f"{relative(path)} has no .pyi beside it"
        for path in code(".pyx", under=PRODUCT) if not path.with_suffix(".pyi").exists()
    ])  # fmt: skip


def test_no_name_says_nothing() -> None:
    report([
        f"{relative(path)} is named {part}" for path in files()
        for part in path.relative_to(ROOT).with_suffix("").parts if part.strip("_") in VAGUE_NAMES
    ])  # fmt: skip


def test_nothing_names_a_machine_or_a_registry() -> None:
    paths = [p for p in (*files(), ROOT / ".ci" / "run") if p.exists() and p.name != "LICENSE"]
    report([
        f"{relative(path)}:{line_of(path, match)} names {match[0]!r}"
        for path in paths
        for words, pattern in ((MACHINE_WORDS, MACHINE_PATHS), (REGISTRY_WORDS, REGISTRY_HOSTS))
        if any(word in text(path) for word in words)
        for match in pattern.finditer(text(path))
    ])  # fmt: skip


@pytest.mark.parametrize("folder", ["root", "work", "home"])
def test_a_machine_s_folders_are_noticed(folder: str) -> None:
    planted = f"see /{folder}/x"
    assert MACHINE_PATHS.search(planted)
    assert any(word in planted for word in MACHINE_WORDS)


@pytest.mark.parametrize(
    "parts",
    [("pypi.", "org"), ("pypi.", "python"), ("files.python", "hosted"), ("repo1.", "maven"),
     ("registry.npm", "js"), ("deb.", "debian")],
)  # fmt: skip
def test_a_registry_is_noticed(parts: tuple[str, str]) -> None:
    planted = f"see {''.join(parts)}"
    assert REGISTRY_HOSTS.search(planted)
    assert any(word in planted for word in REGISTRY_WORDS)


def line_of(path: Path, match: re.Match[str]) -> int:
    """The line on which something was found in a file."""
    return text(path).count("\n", 0, match.start()) + 1


def test_nothing_is_left_to_do_in_a_comment() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "X" + "XX")
    marks = re.compile(rf"\b(?:{'|'.join(words)})\b")
    report([
        f"{relative(path)}:{line_of(path, match)} has {match[0]}; do it, or say in SKIPPED.md why"
        " not" for path in code(*CODE) if any(word in text(path) for word in words)
        for match in marks.finditer(text(path))
    ])  # fmt: skip


def test_every_skipped_test_is_explained() -> None:
    """A file that skips a test, or expects it to fail, is listed in SKIPPED.md with the reason."""
    skips = re.compile(
        r"\b(?:pytest\.(?:skip|xfail|importorskip)|pytest\.mark\.(?:skip|skipif|xfail))\b"
    )
    explained = text(ROOT / "SKIPPED.md") if (ROOT / "SKIPPED.md").exists() else ""
    here = Path(__file__).resolve()
    report([
        f"{relative(path)} skips a test and SKIPPED.md does not name the file"
        for path in code(".py", under=("tests/", "bench/"))
        if path != here and skips.search(text(path)) and relative(path) not in explained
    ])  # fmt: skip
