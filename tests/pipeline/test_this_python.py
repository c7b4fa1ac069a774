"""Spark from a virtual environment that is not activated, as cron, systemd and IDEs start it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

import kstore
from kstore.pipeline.this_python import NAMES, SOCKETS, use_this_python, use_unix_sockets

ROOT = Path(__file__).resolve().parents[2]
JOB = """
import sys
import kstore.pipeline
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
events = spark.read.format("kstore").option("subscribe", "orders").load(sys.argv[1])
print("values", [row.value.decode() for row in events.collect()])
"""


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither variable is set, and the PATH leads to another python3; its folder."""
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is put back in any case
        monkeypatch.delenv(name)
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\nexit 1\n")
    (other / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(other))
    return other


@pytest.mark.usefixtures("unset")
def test_this_python_is_named() -> None:
    use_this_python()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_an_activated_environment_is_left_alone(
    unset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(unset / "python"))
    use_this_python()
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("name", NAMES)
def test_what_somebody_has_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/opt/python")
    use_this_python()
    assert {each: os.environ.get(each) for each in NAMES if each in os.environ} == {
        name: "/opt/python"
    }


@pytest.mark.usefixtures("unset")
def test_a_session_that_runs_already_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    running = SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=object()))
    monkeypatch.setitem(sys.modules, "pyspark.core.context", running)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="import kstore.pipeline before the session"):
        use_this_python()


@pytest.mark.java
@pytest.mark.slow
def test_a_job_of_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path / "data", topic="orders") as log:
        log.append_many([b"first", b"second"])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    # kstore and its dependencies are "installed" there by a .pth file, which needs no network.
    (Path(packages) / "kstore.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    (tmp_path / "job.py").write_text(JOB)
    environment = {
        "PATH": os.pathsep.join(
            part for part in os.environ["PATH"].split(os.pathsep)
            if part != os.path.dirname(sys.executable)
        ),
        "HOME": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    } | {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}  # fmt: skip
    done = subprocess.run(
        [python, tmp_path / "job.py", tmp_path / "data"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert "values ['first', 'second']" in done.stdout, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("given", "gateway", "expected"),
    [(None, None, "true"), ("false", None, "false"), (None, "12345", None)],
)
def test_unix_sockets_are_used_unless_somebody_decided_or_the_jvm_runs(
    given: str | None, gateway: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.core.context", None)
    for name, value in ((SOCKETS, given), ("PYSPARK_GATEWAY_PORT", gateway)):
        monkeypatch.setenv(name, value or "")  # so that it is put back in any case
        if value is None:
            monkeypatch.delenv(name)
    use_unix_sockets()
    assert os.environ.get(SOCKETS) == expected


def test_a_jvm_that_was_started_without_them_goes_on_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = SimpleNamespace(SparkContext=SimpleNamespace(_gateway=object()))
    monkeypatch.setitem(sys.modules, "pyspark.core.context", running)
    monkeypatch.setenv(SOCKETS, "")
    monkeypatch.delenv(SOCKETS)
    use_unix_sockets()
    assert SOCKETS not in os.environ
