"""The house rules as tests: layers, purity, sizes, names, docstrings, dead modules, and what may
stand in a file.

Each test reads the sources as text or syntax trees and imports none of them. A limit that is
broken today is in a table with its present value; the value may only shrink, and an entry that is
no longer needed fails the test.
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
FOLDERS = ("kstore", "broker", "clients", "pipeline", "pyspark_kstore", "tests", "bench")
PRODUCT = ("kstore/", "broker/", "clients/", "pipeline/", "pyspark_kstore/")
CODE = {".py", ".pyi", ".pyx", ".pxd", ".h"}
TEXT = CODE | {".md", ".toml", ".yml", ".xml", ".in", ".sh", ""}

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

# What is over a limit today: path or path::function -> its lines. Entries only shrink or go.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}

# Lowest first. A module imports from its own component and from lower layers, not from a
# neighbour.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "kstore.errors",
        "kstore.types",
        "kstore.acls",
        "kstore.env",
        "kstore.config",
        "kstore.private_files",
    ),
    ("kstore._fast",),
    ("kstore._fast.record",),
    ("kstore._fast.protocol",),
    ("kstore._fast.log",),
    ("kstore._fast.broker",),
    ("kstore._fast.network", "kstore._fast.replication", "kstore._fast.clients"),
    ("kstore.record", "kstore.protocol"),
    ("kstore.log", "kstore.net"),
    ("kstore.clients", "kstore.broker.state"),
    ("kstore.broker.coordination",),
    ("kstore.broker.runtime",),
    ("kstore.broker.api",),
    ("kstore.broker.server", "kstore.broker.metrics", "kstore.broker.http_server"),
    ("kstore.broker.faults",),
    ("kstore.broker.http_api",),
    ("kstore.broker.app",),
    ("kstore.broker_process",),
    ("kstore.pipeline",),
    ("pyspark_kstore",),
    ("kstore.cli", "kstore.testing"),
    ("kstore.__main__",),
)
# The lowest layer is one component: its files may use each other.
BASE = LAYERS[0]

PURE = ("kstore.broker.state", "kstore.clients.core")
IMPURE = {
    "asyncio", "concurrent", "multiprocessing", "os", "random", "secrets", "selectors", "signal",
    "socket", "subprocess", "threading", "time", "uvloop",
}  # fmt: skip
# Never imported when a broker or an embedded log starts: they cost start-up time and memory.
HEAVY = {
    "cryptography", "h11", "hypothesis", "jwt", "matplotlib", "numpy", "pyarrow", "pyspark",
    "re2", "rich", "scramp", "typer",
}  # fmt: skip
MAY_BE_HEAVY = ("kstore.cli", "kstore.pipeline", "kstore.broker.http_server", "pyspark_kstore")

# Where a user or the operating system comes in; every other module must be reached from one of
# these. The store in memory is for tests and simulation, which begin with it.
ENTRY_POINTS = (
    "kstore", "kstore.__main__", "kstore.broker", "kstore.clients", "kstore.pipeline", "kstore.log",
    "pyspark_kstore",
    "kstore.record", "kstore.protocol", "kstore.broker.coordination.memory_store",
    "kstore.testing", "kstore.testing.plugin",
)  # fmt: skip
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
MACHINE_PATHS = re.compile(r"(?<![\w.$}~-])/(?:" + "|".join(("root", "work", "home")) + r")/")
REGISTRY_HOSTS = re.compile(
    r"\b(?:pypi\.(?:org|python)|files\.python"
    + r"hosted|repo\d?\.maven|registry\.npm"
    + r"js|deb\.debian)\b"
)


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
    """The path as it is written in this file's tables and in messages."""
    return path.relative_to(ROOT).as_posix()


def code(*suffixes: str, under: tuple[str, ...] = ("",)) -> list[Path]:
    """The files with these suffixes below these folders."""
    return [p for p in files() if p.suffix in suffixes and relative(p).startswith(under)]


@cache
def text(path: Path) -> str:
    """A file's content."""
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """A Python file's syntax tree."""
    return ast.parse(text(path), filename=str(path))


def module_name(path: Path) -> str:
    """The dotted name that a file is imported by: broker/x.py is kstore.broker.x."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] in {"broker", "clients", "pipeline"}:
        parts.insert(0, "kstore")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by name; a .pyx stands for its compiled module."""
    return {module_name(p): p for p in code(".py", ".pyx", under=PRODUCT)}


class Import:
    """One import: the module asked for, the line, and whether it runs when the importer is
    loaded.
    """

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
    for node, at_load in _statements(tree(path), True):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_load=at_load)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if inner in modules() else node.module
                yield Import(name, node.lineno, at_load=at_load)


def _statements(above: ast.AST, at_load: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement within another, and whether it runs when the module is loaded."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        for node in getattr(above, name, ()):
            if isinstance(node, ast.stmt):
                yield node, at_load
            is_guard = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            is_later = is_guard or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _statements(node, at_load and not is_later)


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


def component(name: str) -> tuple[int, str] | None:
    """The layer of a module and its component there; None for the package faces, which have no
    layer.
    """
    best: tuple[int, str] | None = None
    for level, members in enumerate(LAYERS):
        for member in members:
            inside = name == member or name.startswith(member + ".")
            if inside and (best is None or len(member) > len(best[1])):
                best = (level, member)
    if best and best[1] in BASE:
        return (0, "base")
    return best


def report(problems: list[str]) -> None:
    """Fail with one line per problem."""
    assert not problems, "\n" + "\n".join(problems)


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """The trees of all files are millions of objects: the garbage collector is spared them, and
    they go when the last test of a module has looked at them.
    """
    gc.disable()
    yield
    tree.cache_clear()
    gc.enable()


def test_a_module_imports_only_from_lower_layers() -> None:
    problems = []
    for path in code(".py", ".pyx", ".pxd", under=PRODUCT):
        own = component(module_name(path))
        if own is None:
            continue
        for imported in imports(path):
            other = component(imported.name)
            if other is not None and other != own and other[0] >= own[0]:
                problems.append(
                    f"{relative(path)}:{imported.line} imports {imported.name}, which is not below"
                )
    report(problems)


def test_every_module_has_a_layer() -> None:
    faces = {"kstore", "kstore.broker"}
    report(
        [
            f"{name} is in no layer"
            for name in modules()
            if name not in faces and component(name) is None
        ]
    )


def test_pure_folders_import_nothing_that_acts() -> None:
    report([
        f"{relative(path)}:{imported.line} imports {imported.name} in a pure folder"
        for name, path in modules().items() if name.startswith(PURE)
        for imported in imports(path) if imported.name.split(".")[0] in IMPURE
    ])  # fmt: skip


def test_start_up_imports_nothing_heavy() -> None:
    report([
        f"{relative(path)}:{imported.line} imports {imported.name} when it is loaded"
        for name, path in modules().items() if not name.startswith(MAY_BE_HEAVY)
        for imported in imports(path) if imported.at_load and imported.name.split(".")[0] in HEAVY
    ])  # fmt: skip


def test_modules_do_not_import_each_other_in_a_ring() -> None:
    graph = {
        name: {
            i.name for i in imports(path) if i.at_load and i.name in modules() and i.name != name
        }
        for name, path in modules().items()
    }
    done: set[str] = set()
    problems: list[str] = []

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            problems.append(" -> ".join((*trail[trail.index(name) :], name)))
        elif name not in done:
            for other in sorted(graph[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())
    report(problems)


def test_no_module_is_dead() -> None:
    reached: set[str] = set()
    programs = [n for n, p in modules().items() if '__name__ == "__main__"' in text(p)]
    todo = [name for name in (*ENTRY_POINTS, *programs) if name in modules()]
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        reached.add(name)
        path = modules()[name]
        todo += [imported.name for imported in imports(path) if imported.name in modules()]
        if path.with_suffix(".pxd").exists():
            todo += [i.name for i in imports(path.with_suffix(".pxd")) if i.name in modules()]
        todo += _named_in_tables(name, path)
        parent = name.rpartition(".")[0]
        todo += [parent] if parent in modules() else []
    report(
        [f"{name} is not reached from any entry point" for name in sorted(set(modules()) - reached)]
    )


def _named_in_tables(name: str, path: Path) -> list[str]:
    """Modules that a table names as "module" or "module:function", to be imported when needed."""
    whole = re.findall(r'"(kstore(?:\.\w+)+)"', text(path))
    if "import_module(" in text(path):
        words = re.findall(r'"([\w.]+)(?::\w+)?"', text(path))
        parts = name.split(".")
        packages = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        whole += [f"{package}.{w}" for package in packages for w in words]
    return [found for found in whole if found in modules()]


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
    """What a file imports by name from another: some of it are modules."""
    for node, _ in _statements(tree(path), True):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def check_ratchet(found: dict[str, int], known: dict[str, int], limit: int, what: str) -> None:
    """Compare what is over the limit with the table of known ones, both ways."""
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
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield node.name, node.end_lineno - node.lineno + 1


_CYTHON_DEF = re.compile(
    r"^( *)(?:async )?(?:def|cdef|cpdef)\b(?! class| enum| struct| extern)[^=\n]*?(\w+)\("
)


def _cython_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Measure functions by indentation: one ends at the next line that is not deeper than its
    def.
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
    """A mark for a checker at the end of a line doesn't count."""
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
    """Yield public classes, functions and methods; of a property and an overload the first form."""
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
        f"{relative(path)}:{number} names {match[0]!r}"
        for path in paths for number, line in enumerate(text(path).splitlines(), 1)
        for pattern in (MACHINE_PATHS, REGISTRY_HOSTS) for match in pattern.finditer(line)
    ])  # fmt: skip


def test_nothing_is_left_to_do_in_a_comment() -> None:
    marks = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
    report([
        f"{relative(path)}:{number} has {match[0]}; do it, or say in SKIPPED.md why not"
        for path in code(*CODE) for number, line in enumerate(text(path).splitlines(), 1)
        for match in marks.finditer(line)
    ])  # fmt: skip


def test_every_skipped_test_is_explained() -> None:
    """A file that skips a test, or expects it to fail, is named in SKIPPED.md with the reason."""
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
