"""The version of the installed package, by its metadata."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kstore.version import installed_version


def _told(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", [str(each) for each in folders])
    installed_version.cache_clear()
    try:
        return installed_version()
    finally:
        installed_version.cache_clear()


def _install(folder: Path, fields: str) -> None:
    made = folder / "kstore-9.8.7.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(fields)


def test_it_is_what_importlib_says() -> None:
    assert installed_version() == version("kstore")


def test_it_loads_no_package_for_that() -> None:
    program = (
        "import sys; from kstore.version import installed_version; installed_version(); "
        "print('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "False"


def test_the_first_folder_that_has_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path / "a", "Metadata-Version: 2.4\nName: kstore\nVersion: 9.8.7\n\ntext\n")
    _install(tmp_path / "b", "Name: kstore\nVersion: 1.0\n")
    missing = tmp_path / "missing"
    assert _told([missing, tmp_path / "a", tmp_path / "b"], monkeypatch) == "9.8.7"


def test_sources_that_were_not_installed_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _told([tmp_path], monkeypatch) == "unknown"
