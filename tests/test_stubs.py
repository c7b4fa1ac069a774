"""The .pyi next to each compiled module: mypy's stubtest compares it with the module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
ALLOWLIST = Path(__file__).with_name("stubtest_allowlist.txt")
SETTINGS = Path(__file__).with_name("stubtest.ini")


def stubtest(folder: Path, modules: list[str]) -> subprocess.CompletedProcess[str]:
    """Compare modules below a folder with their stubs."""
    command = [
        sys.executable, "-m", "mypy.stubtest", *modules, "--concise", "--ignore-disjoint-bases",
        "--allowlist", str(ALLOWLIST), "--ignore-unused-allowlist",
        "--mypy-config-file", str(SETTINGS),
    ]  # fmt: skip
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_stubs_agree_with_the_compiled_modules() -> None:
    sources = sorted((ROOT / "kstore" / "_fast").rglob("*.pyx"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources]
    done = stubtest(ROOT, modules)
    assert done.returncode == 0, done.stdout + done.stderr
    assert modules


def test_a_stub_that_names_too_much_or_too_little_is_found(tmp_path: Path) -> None:
    (tmp_path / "compiled.py").write_text("def there(a): ...\ndef untold(): ...\nclass Made: ...\n")
    (tmp_path / "compiled.pyi").write_text(
        "def there(b: int) -> None: ...\n"
        "def gone() -> None: ...\n"
        "class Made:\n    def lost(self) -> None: ...\n"
    )
    found = stubtest(tmp_path, ["compiled"]).stdout
    for name in ("there", "gone", "untold", "Made.lost"):
        assert f"compiled.{name} " in found
