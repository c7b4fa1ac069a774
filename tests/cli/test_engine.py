"""Which jobs of `kstore pipeline` run in this process without Spark: none for which a Spark setting
may name another cluster or file system.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from kstore.cli.pipeline.engine import is_local
from kstore.pipeline.jobs.archive import FEW


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark without settings."""
    names = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONF_DIR", "HADOOP_CONF_DIR")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "conf").mkdir()
    return tmp_path


def local(
    *, engine: str = "auto", master: str | None = None, conf: list[str] | None = None,
    folder: str = "a", offsets: int = 5,
) -> bool:  # fmt: skip
    return is_local(engine, master, conf, [folder], lambda: offsets)


def test_auto_means_this_process_for_few_offsets_of_a_folder() -> None:
    assert local()
    assert local(offsets=FEW)
    assert not local(offsets=FEW + 1)
    assert not local(folder="hdfs://host/a")
    with pytest.raises(typer.BadParameter, match="folders of this machine, not hdfs://host/a"):
        local(engine="local", folder="hdfs://host/a")


def test_options_of_spark_mean_spark() -> None:
    assert not local(master="yarn")
    assert not local(conf=["spark.hadoop.fs.defaultFS=hdfs://host"])
    assert not local(conf=["spark.executor.memory=2g"])
    assert local(engine="local", conf=["spark.executor.memory=2g"])


@pytest.mark.parametrize(
    "name", ["PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONF_DIR", "HADOOP_CONF_DIR"]
)
def test_the_environment_of_spark_means_spark(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    assert not local()
    assert local(engine="local")


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("spark.executor.memory 4g\n# spark.master yarn\n", True),
        ("spark.executor.memory 4g\n  spark.master\tyarn\n", False),
        ("spark.hadoop.fs.defaultFS=hdfs://host:8020\n", False),
        ("spark.remote sc://host\n", False),
    ],
)
def test_defaults_that_name_a_cluster_or_a_file_system_mean_spark(
    home: Path, text: str, here: bool
) -> None:
    (home / "conf" / "spark-defaults.conf").write_text(text)
    assert local() is here


def test_a_file_system_of_hadoop_s_configuration_means_spark(home: Path) -> None:
    (home / "conf" / "core-site.xml").write_text("<configuration/>")
    assert not local()


def test_without_spark_home_pyspark_s_own_folder_counts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME")
    package = home / "pyspark"
    (package / "conf").mkdir(parents=True)
    monkeypatch.setattr("kstore.cli.pipeline.engine.find_spec", lambda name: _Spec(package))
    assert local()
    (package / "conf" / "spark-defaults.conf").write_text("spark.master yarn\n")
    assert not local()


class _Spec:
    """A package in this folder."""

    def __init__(self, folder: Path) -> None:
        self.origin = str(folder / "__init__.py")
