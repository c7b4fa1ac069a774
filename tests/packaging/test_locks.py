"""What `make` installs is locked: every requirement of pyproject.toml has a version and hashes in
locks/, the same in each file, and no file names where packages come from.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("run", "test", "build")
PINNED = re.compile(r"^([a-z0-9-]+)==([^ ;\\]+)(?: ; ([^\\]+))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def lines(lock: str) -> list[str]:
    return (ROOT / "locks" / f"{lock}.txt").read_text().splitlines()


def versions(lock: str) -> dict[str, list[str]]:
    """Name to versions: more than one where Pythons differ."""
    found: dict[str, list[str]] = {}
    for line in lines(lock):
        if match := PINNED.match(line):
            found.setdefault(match[1], []).append(match[2])
    return found


def wanted(*extras: str) -> list[Requirement]:
    """What the project asks for with these extras, and with the extras in them."""
    table = project()["project"]
    rows = [Requirement(row) for row in table["dependencies"]]
    for extra in extras:
        for row in map(Requirement, table["optional-dependencies"][extra]):
            rows += wanted(*row.extras) if row.name == "kstore" else [row]
    return rows


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_is_a_version_a_hash_or_a_comment(lock: str) -> None:
    odd = [
        line
        for line in lines(lock)
        if not PINNED.match(line) and not HASH.match(line) and not line.startswith("    #")
    ]
    assert odd == [], "an option, an address or a package without a hash"
    text = "\n".join(lines(lock))
    assert "://" not in text
    for package in re.split(r"\n(?=[a-z])", text):
        assert "--hash=" in package, package


@pytest.mark.parametrize(("lock", "extras"), [("run", ["run"]), ("test", ["test"])])
def test_what_the_project_asks_for_is_locked(lock: str, extras: list[str]) -> None:
    locked = versions(lock)
    for row in wanted(*extras):
        found = locked.get(canonicalize_name(row.name), [])
        assert found, f"{row} is not in locks/{lock}.txt: make lock"
        assert all(row.specifier.contains(each) for each in found), f"{row}: {found}: make lock"


def test_the_files_agree() -> None:
    together = versions("test")
    for lock in ("run", "build"):
        for name, found in versions(lock).items():
            assert name not in together or together[name] == found, f"{name}: make lock UPGRADE=yes"


def test_build_tools_are_those_of_the_build_system() -> None:
    asked = (ROOT / "locks" / "build.in").read_text().splitlines()
    assert set(project()["build-system"]["requires"]) == set(asked[1:]) - {"pip"}
    assert {"pip", "setuptools", "cython"} <= set(versions("build"))


def test_markers_leave_no_python_without_a_version() -> None:
    """A package with several versions has one for each Python."""
    from packaging.markers import Marker

    marked: dict[str, list[Marker]] = {}
    for line in lines("test"):
        match = PINNED.match(line)
        if match and match[3] and "python_full_version" in match[3]:
            marked.setdefault(match[1], []).append(Marker(match[3]))
    for name, markers in marked.items():
        for python in PYTHONS:
            environment = {"python_version": python, "python_full_version": f"{python}.1"}
            fitting = sum(marker.evaluate(environment) for marker in markers)
            assert fitting <= 1, f"{name} on {python}"
            assert fitting or len(markers) == 1, f"{name} on {python}"
