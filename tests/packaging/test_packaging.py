"""What is shipped: an sdist with all sources, a wheel built from it alone, and that wheel at work
in a fresh environment.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.sources import module_name

ROOT = Path(__file__).parents[2]
FAST = ROOT / "kstore" / "_fast"
APPEND = """
import kstore, sys
assert "site-packages" in kstore.__file__, kstore.__file__
with kstore.open_log(sys.argv[1]) as log:
    print(log.append(b"value", key=b"key"), log.append(b"second"))
    print([(r.offset, bytes(r.key or b""), bytes(r.value)) for r in log.records()])
"""

IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    print(importlib.import_module(name).__spec__.name)
try:
    import kstore._fast.record.nothing
except ImportError as e:
    assert e.name == "kstore._fast.record.nothing", e.name
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return what it printed; its errors are shown if it fails."""
    kept = {"PATH", "HOME", "LANG", "TMPDIR"}
    environment = {k: v for k, v in os.environ.items() if k in kept or "PROXY" in k.upper()}
    environment |= {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "UV_"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command} failed:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel that `python -m build` makes of it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_sdist_holds_every_source_and_nothing_generated(shipped: tuple[Path, Path]) -> None:
    with tarfile.open(shipped[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = [p for p in FAST.rglob("*") if p.suffix in {".pyx", ".pxd", ".pyi", ".h"}]
    missing = {p.relative_to(ROOT).as_posix() for p in sources} - names
    assert not missing
    assert {"LICENSE", "README.md", "setup.py", "kstore/py.typed"} <= names
    assert "kstore/broker/__init__.py" in names
    assert "pipeline/kstore-spark-python" in names
    assert not [name for name in names if name.endswith((".so", ".c", ".pyc"))]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_holds_every_module_and_the_public_types(shipped: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(shipped[1]) as archive:
        names = set(archive.namelist())
    for folder, package in (("broker", "kstore/broker"), ("clients", "kstore/clients"),
                            ("pipeline", "kstore/pipeline"), ("kstore", "kstore"),
                            ("pyspark_kstore", "pyspark_kstore")):  # fmt: skip
        for source in (ROOT / folder).rglob("*.py"):
            inside = source.relative_to(ROOT / folder).as_posix()
            if not inside.startswith(("broker/", "clients/", "pipeline/")):
                assert f"{package}/{inside}" in names
    types = {p for room in ("clients", "log", "record") for p in (FAST / room).glob("*.pyi")}
    shipped_types = {name for name in names if name.endswith(".pyi")}
    assert shipped_types == {p.relative_to(ROOT).as_posix() for p in types}
    assert "kstore/py.typed" in names
    assert "kstore/pipeline/jobs/reports/report.html.jinja" in names
    assert [name for name in names if name.endswith(".data/scripts/kstore-spark-python")]
    pages = [p for p in (ROOT / "kstore/console/pages").glob("*/*") if p.suffix != ".pyc"]
    assert {p.relative_to(ROOT).as_posix() for p in pages} <= names
    built = [name.split(".")[0] for name in names if name.endswith(".so")]
    assert built == ["kstore/_fast/modules"]
    assert not [name for name in names if name.endswith((".pyx", ".pxd", ".c", ".h", "README.md"))]
    assert not [name for name in names if name.startswith(("tests/", "bench/", "broker/"))]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_works_in_a_fresh_environment(shipped: tuple[Path, Path], tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        shipped[1],
        cwd=tmp_path,
    )
    modules = [module_name(source) for source in sorted(FAST.rglob("*.pyx"))]
    printed = run(python, "-W", "error", "-c", IMPORT, *modules, cwd=tmp_path).split()
    assert printed == modules
    printed = run(python, "-c", APPEND, tmp_path / "log", cwd=tmp_path).splitlines()
    assert printed == ["0 1", "[(0, b'key', b'value'), (1, b'', b'second')]"]
    assert run(home / "bin" / "kstore", "--version", cwd=tmp_path).startswith("kstore ")
    assert "Usage" in run(home / "bin" / "kstore", "serve", "--help", cwd=tmp_path)


@pytest.mark.parametrize("name", ["broker", "clients", "pipeline"])
def test_a_folder_is_imported_under_its_public_name_only(name: str) -> None:
    code = f"import kstore.{name}\ntry:\n    import {name}\nexcept ImportError as e:\n    print(e)"
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert f"imported as kstore.{name}" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "tag"),
    [("1.2.3", "v1.2.3"), pytest.param("1.2.4.dev5", "HEAD", marks=pytest.mark.slow)],
)
def test_a_release_names_its_project_and_links_to_it(
    version: str, tag: str, tmp_path: Path
) -> None:
    home = "https://code.example/team/kstore"
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)], cwd=ROOT,
        env=os.environ | {"KSTORE_PROJECT_URL": home, "SETUPTOOLS_SCM_PRETEND_VERSION": version},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told = email.message_from_bytes((tmp_path / "kstore.egg-info" / "PKG-INFO").read_bytes())
    links = dict(line.split(", ", 1) for line in told.get_all("Project-URL", []))
    assert told["Version"] == version
    assert links["Source"] == home
    assert links["Changelog"] == f"{home}/blob/{tag}/CHANGELOG.md"
    text = str(told.get_payload())
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert f"{home}/raw/{tag}/docs/operation/console/brokers.png" in targets
    assert f"{home}/blob/{tag}/ARCHITECTURE.md" in targets
    assert [target for target in targets if not target.startswith("https://")] == []
