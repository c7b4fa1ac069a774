"""When a JVM of the tests writes its classes for the next run, and when it uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.beside import class_data
from tests.beside.class_data import ClassData


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An earlier run has ended, and no file was written."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(class_data, "LAST_RUN", tmp_path / "times.json")
    monkeypatch.setattr(class_data, "FOLDER", tmp_path / "class-data")
    (tmp_path / "times.json").touch()
    (tmp_path / "java").touch()
    return tmp_path / "class-data"


def write(data: ClassData) -> None:
    """What a JVM with these flags does at its end."""
    [flag] = [flag for flag in data.flags() if "ArchiveClassesAtExit" in flag]
    Path(flag.partition("=")[2]).write_bytes(b"classes")
    data.keep()


def test_the_first_run_and_ci_write_no_file(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    assert ClassData("spark").flags() == []
    monkeypatch.delenv("CI")
    (tmp_path / "times.json").unlink()
    assert ClassData("spark").flags() == []
    assert not folder.exists()


def test_what_one_run_writes_the_next_one_uses(tmp_path: Path, folder: Path) -> None:
    write(ClassData("spark", tmp_path / "java"))
    [file] = folder.iterdir()
    assert f"-XX:SharedArchiveFile={file}" in ClassData("spark", tmp_path / "java").flags()


def test_another_java_writes_another_file_in_its_place(tmp_path: Path, folder: Path) -> None:
    write(ClassData("kafka"))
    write(ClassData("spark", tmp_path / "java"))
    (tmp_path / "java").unlink()
    (tmp_path / "java").write_bytes(b"newer")
    write(ClassData("spark", tmp_path / "java"))
    assert [each.name.partition("-")[0] for each in sorted(folder.iterdir())] == ["kafka", "spark"]


def test_a_file_of_a_killed_run_is_removed_but_not_one_of_a_run_that_lives(
    tmp_path: Path, folder: Path
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder.mkdir()
    for pid in (ended.pid, os.getppid()):
        (folder / f"spark-0123.{pid}").write_bytes(b"classes")
    write(ClassData("spark", tmp_path / "java"))
    assert {each.suffix for each in folder.iterdir()} == {".jsa", f".{os.getppid()}"}


def test_a_jvm_that_has_written_nothing_leaves_nothing(folder: Path) -> None:
    data = ClassData("spark")
    assert data.flags()
    data.keep()
    assert list(folder.iterdir()) == []
