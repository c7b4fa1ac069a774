"""Spark from a virtual environment that is not activated, as cron, systemd and IDEs start it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

import kstore
from kstore.pipeline.this_python import (
    COMMAND,
    NAMES,
    SOCKETS,
    this_python,
    use_this_python,
    use_unix_sockets,
)
from tests.beside.programs import output_of

ROOT = Path(__file__).resolve().parents[2]
KEPT = "JAVA_HOME", "SPARK_SUBMIT_OPTS"
PACKAGES = "lib/python3.12/site-packages"
JOB = """
import sys
import pyspark_kstore
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
events = spark.read.format("kstore").option("subscribe", "orders").load(sys.argv[1])
print("values", [row.value.decode() for row in events.collect()])
"""


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither variable is set, and the PATH has another python3 first; returns the folder of that
    one.
    """
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is restored in any case
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
    assert os.environ["PYSPARK_PYTHON"] == this_python()
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


@pytest.mark.usefixtures("unset")
def test_reading_without_spark_leaves_the_environment_alone() -> None:
    code = "import os; had = dict(os.environ); import kstore; kstore.scan; assert os.environ == had"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_command_that_pip_installs_is_preferred(
    unset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(unset / "python"))
    assert this_python() == str(unset / "python")
    (unset / COMMAND).touch(mode=0o755)
    assert this_python() == str(unset / COMMAND)


@pytest.mark.parametrize(("gateway", "named"), [(None, COMMAND), ("12345", None)])
def test_an_activated_environment_is_named_without_its_path(
    gateway: str | None, named: str | None, unset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(unset / "python"))
    monkeypatch.setitem(sys.modules, "pyspark.core.context", None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", gateway or "")
    if gateway is None:
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    (unset / COMMAND).touch(mode=0o755)
    use_this_python()
    assert os.environ.get("PYSPARK_PYTHON") == named


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
    with pytest.warns(UserWarning, match="import pyspark_kstore before the session"):
        use_this_python()


@pytest.mark.thorough
@pytest.mark.java
@pytest.mark.slow
def test_a_job_of_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path / "data", topic="orders") as log:
        log.append_many([b"first", b"second"])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = output_of([python, "-c", code]).strip()
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
    } | {name: os.environ[name] for name in KEPT if name in os.environ}  # fmt: skip
    command = [python, tmp_path / "job.py", tmp_path / "data"]
    written = output_of(command, cwd=tmp_path, env=environment, timeout_s=240)
    assert "values ['first', 'second']" in written


@pytest.mark.parametrize(
    ("given", "gateway", "expected"),
    [(None, None, "true"), ("false", None, "false"), (None, "12345", None)],
)
def test_unix_sockets_are_used_unless_somebody_decided_or_the_jvm_runs(
    given: str | None, gateway: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.core.context", None)
    for name, value in ((SOCKETS, given), ("PYSPARK_GATEWAY_PORT", gateway)):
        monkeypatch.setenv(name, value or "")  # so that it is restored in any case
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


# ---- kstore-spark-python: this Python without the zips that Spark puts first in its path ----


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment as the command sees it: its python3 prints its PYTHONPATH and its
    arguments.
    """
    home = tmp_path / "environment with a space"
    (home / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "pipeline" / "kstore-spark-python", home / "bin")
    python = home / "bin" / "python3"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH"\nfor each; do echo "$each"; done\n')
    python.chmod(0o755)
    (home / PACKAGES / "py4j-0.10.9.dist-info").mkdir(parents=True)
    return home


def started(environment: Path, path: list[str], *arguments: str) -> list[str]:
    """The output of the command's Python."""
    command = [environment / "bin" / "kstore-spark-python", *arguments]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(path)}
    return output_of(command, env=variables).splitlines()


def spark_puts_first(home: Path | str) -> list[str]:
    """What Spark puts before the PYTHONPATH of a job."""
    return [
        f"{home}/python/lib/pyspark.zip",
        f"{home}/python/lib/py4j-0.10.9-src.zip",
        f"{home}/jars/spark-core_2.13-4.3.0.jar",
    ]


def test_an_installed_pyspark_is_used_from_its_folder(environment: Path) -> None:
    path = [*spark_puts_first(environment / PACKAGES / "pyspark"), "/job", "/other *"]
    assert started(environment, path, "-m", "a b", "*") == ["/job:/other *", "-m", "a b", "*"]


def test_another_py4j_than_the_installed_one_stays(environment: Path) -> None:
    first = spark_puts_first(environment / PACKAGES / "pyspark")
    py4j = first[1].replace("0.10.9", "0.10.8")
    assert started(environment, [first[0], py4j, first[2]]) == [py4j]


def test_an_unpacked_spark_is_used_from_its_folder(environment: Path, tmp_path: Path) -> None:
    home = tmp_path / "spark"
    (home / "python" / "pyspark").mkdir(parents=True)
    (home / "python" / "pyspark" / "__init__.py").touch()
    first = spark_puts_first(home)
    assert started(environment, [*first, "/job"]) == [f"{home}/python:{first[1]}:/job"]


@pytest.mark.parametrize("home", ["/another/lib/python3.12/site-packages/pyspark", "/gone"])
def test_a_pyspark_that_is_only_in_its_zip_stays(environment: Path, home: str) -> None:
    path = [*spark_puts_first(home), "/job"]
    assert started(environment, path) == [os.pathsep.join(path)]


@pytest.mark.parametrize(
    ("module", "given", "expected"),
    [
        ("pyspark.sql.streaming.python_streaming_source_runner", None, "1"),
        ("pyspark.sql.streaming.python_streaming_source_runner", "3", "3"),
        ("pyspark.daemon pyspark.sql.worker.plan_data_source_read", None, "1"),
        ("pyspark.daemon pyspark.worker", None, "unset"),
    ],
)
def test_processes_that_only_plan_start_no_threads_of_openblas(
    module: str, given: str | None, expected: str, environment: Path
) -> None:
    python = environment / "bin" / "python3"
    python.write_text('#!/bin/sh\necho "${OPENBLAS_NUM_THREADS:-unset}"\n')
    command = [environment / "bin" / "kstore-spark-python", "-m", *module.split()]
    threads = {"OPENBLAS_NUM_THREADS": given} if given else {}
    written = output_of(command, env={"PATH": os.environ["PATH"]} | threads)
    assert written.strip() == expected


def test_the_process_of_a_stream_imports_pyarrow_when_it_is_used(environment: Path) -> None:
    module = "pyspark.sql.streaming.python_streaming_source_runner"
    expected = ["", "-m", "kstore.pipeline.worker_process", module]
    assert started(environment, [], "-m", module) == expected
    assert started(environment, [], "-m", module, "more") == ["", "-m", module, "more"]


def test_a_python_elsewhere_may_have_no_kstore(environment: Path) -> None:
    python = environment / "bin" / "python3"
    other = environment / "other" / "python3"
    other.parent.mkdir()
    python.rename(other)
    arguments = ["-m", "pyspark.sql.streaming.python_streaming_source_runner"]
    command = [environment / "bin" / "kstore-spark-python", *arguments]
    written = output_of(command, env={"PATH": f"{other.parent}:{os.environ['PATH']}"})
    assert written.splitlines() == ["", *arguments]


def test_without_spark_it_is_python(environment: Path) -> None:
    assert started(environment, ["/job"], "-c", "pass") == ["/job", "-c", "pass"]
