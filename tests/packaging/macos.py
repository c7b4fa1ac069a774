"""Compiles the C code of all Cython modules for macOS on arm64, with zig: python -m
tests.packaging.macos PYTHON_WITH_ZIGLANG. It links nothing and runs nothing: that no call, type or
constant of Linux is used without a twin is what it finds out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = "aarch64-macos"


def compiled(python: str, source: Path, include: Path) -> str:
    """What the compiler says against a file; nothing if it compiles."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                python, "-m", "ziglang", "cc", "-target", TARGET, "-O0", "-w", f"-I{include}",
                f"-I{ROOT}", "-c", str(source), "-o", f"{folder}/module.o",
            ],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
    return "" if done.returncode == 0 else f"{source.relative_to(ROOT)}\n{done.stderr[-2000:]}"


def main(python: str) -> int:
    """Compile everything; 1 if a file does not compile."""
    sources = sorted((ROOT / "kstore" / "_fast").rglob("*.c"))
    if not sources:
        print("There is no C code: run make build first.")
        return 1
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        include = Path(folder) / "include"  # alone: beside it may be headers of Linux
        shutil.copytree(sysconfig.get_paths()["include"], include)
        said = list(pool.map(lambda source: compiled(python, source, include), sources))
    problems = [each for each in said if each]
    print("\n".join(problems) or f"All {len(sources)} modules compile for {TARGET}.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
