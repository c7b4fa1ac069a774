"""The house rules of structure as tests: layers, rooms, import cycles, purity, dead modules.

Each test reads the sources as text or syntax trees and imports none of them.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.sources import (
    PRODUCT,
    ROOT,
    code,
    imports,
    module_name,
    modules,
    relative,
    report,
    text,
    tree,
)
from tests.sources import trees as trees  # a fixture

# Lowest first. A module imports from its own component and from lower layers, not from a neighbour.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "kstore.errors",
        "kstore.types",
        "kstore.acls",
        "kstore.items",
        "kstore.other_protocols",
        "kstore.env",
        "kstore.config",
        "kstore.private_files",
        "kstore.version",
    ),
    ("kstore._fast",),
    ("kstore._fast.record",),
    ("kstore._fast.protocol",),
    ("kstore._fast.disk",),
    ("kstore._fast.shared",),
    ("kstore._fast.queue",),
    ("kstore._fast.log",),
    ("kstore._fast.broker",),
    (
        "kstore._fast.network",
        "kstore._fast.replication",
        "kstore._fast.clients",
        "kstore._fast.shares",
    ),
    ("kstore.record", "kstore.protocol"),
    ("kstore.log", "kstore.net"),
    ("kstore.clients", "kstore.broker.state"),
    ("kstore.broker.coordination",),
    ("kstore.broker.runtime",),
    ("kstore.broker.api",),
    ("kstore.broker.compose",),
    ("kstore.broker.server", "kstore.broker.metrics", "kstore.broker.http_server"),
    ("kstore.broker.console", "kstore.broker.faults", "kstore.broker.http_probes"),
    ("kstore.broker.http_api",),
    ("kstore.broker.app",),
    ("kstore.broker_process", "kstore.backup"),
    ("kstore.pipeline",),
    ("pyspark_kstore",),
    ("kstore.cli", "kstore.testing"),
    ("kstore.console",),
    ("kstore.__main__",),
)
FACES = {"kstore", "kstore.broker", "kstore.clients", "kstore.log", "kstore.pipeline"}
"""What users import. These modules collect names of the rooms below, so in the graph of rooms each
module directly in one of them is a node.
"""
UNSAID = {"kstore", "kstore.broker"}
"""Rooms whose single modules LAYERS names."""
# The lowest layer is one component: its files may import each other.
BASE = LAYERS[0]

PURE = ("kstore.broker.state", "kstore.clients.core")
IMPURE = {
    "asyncio", "concurrent", "multiprocessing", "os", "random", "secrets", "selectors", "signal",
    "socket", "subprocess", "threading", "time", "uvloop",
}  # fmt: skip
# Never imported when a broker or an embedded log starts: they cost start-up time and memory.
HEAVY = {
    "cryptography", "h11", "hypothesis", "jinja2", "jwt", "matplotlib", "numpy", "opentelemetry",
    "pyarrow", "pyspark", "re2", "rich", "scramp", "starlette", "typer", "typing_extensions",
    "uvicorn",
}  # fmt: skip
MAY_BE_HEAVY = (
    "kstore.cli", "kstore.console", "kstore.pipeline", "kstore.broker.http_server",
    "kstore.broker.console", "kstore.broker.http_probes",
    "kstore.broker.runtime.request_log.request_spans", "kstore.clients.tracing", "pyspark_kstore",
)  # fmt: skip

# Entry points for users or the operating system. Every other module must be reachable from one of
# these. The store in memory is for tests and simulation, which start with it.
ENTRY_POINTS = (
    "kstore.clients.compat.confluent",
    "kstore.clients.compat.confluent.admin",
    "kstore.clients.compat.confluent.serialization", "kstore.clients.tracing",
    "kstore", "kstore.__main__", "kstore.broker", "kstore.clients", "kstore.pipeline", "kstore.log",
    "pyspark_kstore",
    "kstore.record", "kstore.protocol", "kstore.broker.coordination.memory_store",
    "kstore.testing", "kstore.testing.plugin",
)  # fmt: skip

# Files of one room, its __init__ counted; modules of one ring of imports, whichever kind they are.
MAX_ROOM_FILES = 18
MAX_RING = 4
MAX_ALONE_QUESTIONS = 6
COMPOSITION = ROOT / "broker" / "compose"


def component(name: str) -> tuple[int, str] | None:
    """The layer of a module and its component in it; None for the public packages, which have no
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
    report(
        [
            f"{name} is in no layer"
            for name in modules()
            if name not in UNSAID and component(name) is None
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


# ---- rooms ----


@cache
def links() -> dict[str, set[str]]:
    """Module to the modules that it imports: when it is loaded, later, or only for types. A .pxd
    counts as its module.
    """
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for path in code(".py", ".pyx", ".pxd", under=PRODUCT):
        name = module_name(path)
        found = {i.name for i in imports(path) if i.name in modules() and i.name != name}
        graph.setdefault(name, set()).update(found)
    return graph


def room_of(name: str) -> str:
    """The package of a module; a package is its own room."""
    path = modules().get(name)
    is_package = path is not None and path.name == "__init__.py"
    return name if is_package else name.rpartition(".")[0]


def rings(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one node (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_rings_of_imports_are_small() -> None:
    """Every import counts: at load, later, only for types, and in Cython."""
    report([
        f"{len(ring)} modules import each other: {', '.join(ring)}"
        for ring in rings(links()) if len(ring) > MAX_RING
    ])  # fmt: skip


def test_no_ring_goes_through_two_rooms() -> None:
    alone = {name: name if room_of(name) in FACES else room_of(name) for name in modules()}
    rooms: dict[str, set[str]] = {}
    for name, others in links().items():
        own = alone.get(name, room_of(name))
        rooms.setdefault(own, set()).update({alone[each] for each in others} - {own})
    report([f"rooms import each other: {', '.join(ring)}" for ring in rings(rooms)])


def _may_import(room: str) -> list[str] | None:
    """What a room's __init__ says after "May import:"; None if it says nothing."""
    said = re.search(r"^May import: (.*?)\.$", _docstring(room), re.MULTILINE | re.DOTALL)
    return None if said is None else [name.strip() for name in said[1].split(",")]


def _covers(said: str, name: str) -> bool:
    """Whether a room's "May import:" allows a module. A room includes all modules below it."""
    return name == said or (said not in UNSAID and name.startswith(said + "."))


def _docstring(room: str) -> str:
    return ast.get_docstring(tree(modules()[room])) or ""


def test_every_room_imports_what_it_says() -> None:
    problems = []
    for path in code(".py", ".pyx", ".pxd", under=PRODUCT):
        name = module_name(path)
        room = room_of(name)
        if room in UNSAID or modules().get(room, path).name != "__init__.py":
            continue
        allowed = _may_import(room)
        if allowed is None:
            problems.append(f"{room}/__init__ does not say what it may import")
            continue
        for imported in imports(path):
            other = imported.name
            if not other.startswith(("kstore", "pyspark_kstore")) or room_of(other) == room:
                continue
            if not any(_covers(each, other) for each in allowed):
                problems.append(
                    f"{relative(path)}:{imported.line} imports {other}: {room} does not say so"
                )
    report(sorted(set(problems)))


def test_a_room_says_nothing_that_is_not_so() -> None:
    used: dict[str, set[str]] = {}
    for path in code(".py", ".pyx", ".pxd", under=PRODUCT):
        used.setdefault(room_of(module_name(path)), set()).update(i.name for i in imports(path))
    report([
        f"{room} says that it may import {each}, and does not"
        for room in used if room not in UNSAID
        for each in _may_import(room) or () if each != "nothing of kstore"
        if not any(_covers(each, name) for name in used[room])
    ])  # fmt: skip


def test_rooms_are_small() -> None:
    counts: dict[str, int] = {}
    for path in code(".py", ".pyx"):
        folder = relative(path.parent)
        counts[folder] = counts.get(folder, 0) + 1
    report([
        f"{folder} has {count} files; a room may have {MAX_ROOM_FILES}"
        for folder, count in counts.items() if count > MAX_ROOM_FILES
    ])  # fmt: skip


def test_the_composition_root_is_typed() -> None:
    """mypy does not check Any."""
    report([
        f"{relative(path)}:{node.lineno} says Any" for path in COMPOSITION.glob("*.py")
        for node in ast.walk(tree(path)) if isinstance(node, ast.Name) and node.id == "Any"
    ])  # fmt: skip


def test_the_root_alone_gives_itself_its_parts() -> None:
    """Only the root of the broker assigns its attributes."""
    assigns = re.compile(r"^\s*(?:self\._?)?broker\.\w+(?:: [^=\n]+)? = ", re.MULTILINE)
    report([
        f"{relative(path)}:{text(path).count(chr(10), 0, match.end()) + 1} assigns{match[0]}..."
        for path in code(".py", under=("broker/",)) if path.parent != COMPOSITION
        for match in assigns.finditer(text(path))
    ])  # fmt: skip


def test_hardly_anybody_asks_whether_the_broker_is_alone() -> None:
    """That is what the implementations of a part are for."""
    asks = re.compile(
        r"\.(?:clustered|shares_store)\b|(?:cluster|membership) is (?:not )?None"
        r"|isinstance\([^)]*\bAlone\b"
    )
    found = [
        f"{relative(path)}:{text(path).count(chr(10), 0, match.start()) + 1} {match[0]}"
        for path in code(".py", under=("broker/",)) if path.parent != COMPOSITION
        for match in asks.finditer(text(path))
    ]  # fmt: skip
    assert len(found) <= MAX_ALONE_QUESTIONS, "\n" + "\n".join(found)


# ---- dead code ----


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
