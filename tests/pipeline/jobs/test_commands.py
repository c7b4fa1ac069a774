"""`kstore pipeline ...` from end to end: in this process on the tests' Spark, once with
spark-submit, and without Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kstore.cli.app import run
from kstore.clients import AdminClient, NewTopic, Producer
from kstore.testing.brokers import Broker
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = ("archive", "restore", "replicate", "verify", "stats", "table")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run `kstore pipeline` with these arguments: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(["pipeline", *arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def events(out: str) -> list[dict[str, Any]]:
    """JSON with one object in each line."""
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example(command: Command, name: str) -> None:
    code, out, _ = command(name, "--help")
    assert code == 0
    assert f"kstore pipeline {name} " in out


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.slow
def test_without_spark_a_command_says_how_to_get_it(name: str) -> None:
    more = {"archive": ["--archive", "x"], "restore": ["--archive", "x"]}
    arguments = ["t", *({"table": ["--to", "iceberg:a/b"]} | more).get(name, [])]
    code = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'numpy'): sys.modules[name] = None\n"
        "from kstore.cli.app import run\n"
        f"sys.exit(run(['pipeline', {name!r}, *{arguments!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install 'kstore[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--subject", "x"], "choose how to decode values: --columns avro, json or protobuf"),
        (["--bad-records", "keep"], "choose how to decode values"),
        (["--columns", "xml"], "--columns is avro or json or protobuf"),
        (["--columns", "avro"], "--columns needs either --schema-registry or --schema"),
        (["--columns", "protobuf", "--schema", __file__], "--message goes with"),
        (
            ["--columns", "avro", "--schema-registry", "http://x", "--message", "m"],
            "--message goes with",
        ),
    ],
)
def test_how_values_are_read_is_said_once(
    command: Command, arguments: list[str], said: str
) -> None:
    code, _, err = command("table", "t", "--to", "iceberg:a/b", *arguments)
    assert code == 2
    assert said in err


def test_the_script_for_spark_submit_is_where_it_says(command: Command) -> None:
    code, out, _ = command("script")
    assert code == 0
    assert Path(out.strip()).is_file()


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verify", "t"), "use two of --from, --to and --archive"),
        (("verify", "t", "--archive", "x", "--match", "keys"), "--match keys compares two"),
        (("verify", "t", "--archive", "x", "--match", "all"), "--match is offsets or keys"),
        (("verify", "t", "--archive", "s3a://x", "--engine", "local"), "machine, not s3a://x"),
        (("archive", "t", "--archive", "hdfs:/x", "--engine", "local"), "machine, not hdfs:/x"),
        (("archive", "t", "--archive", "x", "--engine", "no"), "--engine is auto or local or"),
        (("verify", "t", "--archive", "x", "--number", "value", "--engine", "local"), "need Spark"),
        (("archive", "t", "--archive", "x", "--by", "week"), "--by is day or hour, not 'week'"),
        (("archive", "t", "--archive", "x", "--on-loss", "no"), "--on-loss is fail or skip"),
        (("restore", "t", "--archive", "x", "--compression", "rar"), "'rar' is unknown"),
        (("restore", "t", "--archive", "x", "--rename", "a"), "'a' is not KEY=VALUE"),
        (("replicate", "t"), "specify the cluster to copy from: --from or --from-profile"),
        (("replicate", "(", "--regex", "--from", "x:1"), "is not a regular expression"),
    ],
)
def test_what_makes_no_sense_is_refused_before_spark_starts(
    command: Command, arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = command(*arguments)
    assert code == 2
    assert said in " ".join(err.replace("│", " ").split())


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "local"])
def test_small_clusters_are_verified_without_spark(
    broker: Broker, command: Command, engine: str, tmp_path: Path
) -> None:
    servers, topic, report = broker.bootstrap_servers, f"verified-{engine}", tmp_path / "found"
    with Producer(bootstrap_servers=servers) as producer:
        for n in range(3):
            producer.send(topic, b"v%d" % n)
    code, out, err = command(
        "verify", topic, "--from", servers, "--to", servers, "--engine", engine,
        "--report", str(report),
    )  # fmt: skip
    assert code == 0, err
    assert "3 records in 1 partitions: no problems" in out
    assert pq.read_table(report / "summary")["left_records"].to_pylist() == [3]


@pytest.mark.slow
@pytest.mark.java
def test_jobs_one_after_the_other_on_one_topic(
    spark: SparkSession, broker: Broker, target: Broker, command: Command, tmp_path: Path
) -> None:
    source = broker.bootstrap_servers
    with AdminClient(bootstrap_servers=source) as admin:
        admin.create_topics([NewTopic("jobs", 2)])
        with Producer(bootstrap_servers=source) as producer:
            for n in range(400):
                headers = [("seq", b"%d" % (n // 4))]
                producer.send(
                    "jobs", b"v%d" % n, b"k%d" % (n % 4), partition=n % 2, headers=headers
                )
        admin.alter_group_offsets("slow", {TopicPartition("jobs", 0): 50})
    folder = str(tmp_path / "archive")

    code, out, err = command("archive", "jobs", "--archive", folder, "-b", source, "--json")
    assert code == 0, err
    rows = [e for e in events(out) if e["event"] == "row"]
    assert [(r["partition"], r["start"], r["end"]) for r in rows] == [(0, 0, 200), (1, 0, 200)]

    code, out, err = command(
        "replicate", "jobs", "--from", source, "--to", target.bootstrap_servers, "--json"
    )
    assert code == 0, err
    done = events(out)[-1]
    assert (done["event"], done["records"], done["failed"]) == ("done", 400, 0)

    with Producer(bootstrap_servers=source) as producer:
        producer.send("jobs", b"late", b"k0", partition=0, headers=[("seq", b"7")])
    report = tmp_path / "found"
    code, out, err = command(
        "verify", "jobs", "--from", source, "--archive", folder, "--number", "header:seq",
        "--report", str(report),
    )  # fmt: skip
    assert code == 1, err
    assert "behind: jobs-0 at offset 200, 1 records, right" in out
    assert "key 'k0': 7 arrived again at jobs-0 offset 200" in out
    assert "<svg" in (report / "report.html").read_text()
    good = {row.partition: row.good for row in spark.read.parquet(f"{report}/summary").collect()}
    assert good == {0: False, 1: True}

    code, out, err = command(
        "verify", "jobs", "--from", source, "--archive", folder, "--match", "keys", "--json"
    )
    assert code == 1, err
    assert [e["detail"] for e in events(out) if e["event"] == "row"] == [
        "key 'k0 of partition 0': 100 did not arrive"
    ]

    found = {}
    for engine in ("spark", "local", "auto"):
        report = tmp_path / engine
        code, out, err = command(
            "stats", "jobs", "-b", source, "--top", "2", "--report", str(report), "--json",
            "--engine", engine,
        )  # fmt: skip
        assert code == 0, err
        rows = [e for e in events(out) if e["event"] == "row"]
        found[engine] = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
        assert "most frequent keys" in (report / "report.html").read_text()
        assert sum(pq.read_table(report / "sizes")["records"].to_pylist()) == 401
    (topic,) = (r for r in found["spark"] if r["kind"] == "topic")
    assert (topic["records"], topic["keys"], topic["lag"]) == (401, 4, 151)
    keys = [(r["key"], r["records"]) for r in found["spark"] if r["kind"] == "key"]
    assert keys[0] == ("k0", 101)
    assert found["local"] == found["spark"] == found["auto"]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.java
def test_spark_submit_takes_the_same_command(
    broker: Broker, command: Command, tmp_path: Path
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("submitted", b"one", partition=0)
    _, script, _ = command("script")
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-submit")),
            "--master", "local[1]", "--driver-memory", "512m",
            "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=1",
            script.strip(), "archive", "submitted", "--archive", str(tmp_path / "a"),
            "-b", broker.bootstrap_servers,
        ],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1 records of 1 partitions archived" in done.stdout


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.java
def test_spark_s_own_output_is_shown_only_on_request(broker: Broker, tmp_path: Path) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("quiet", b"one", partition=0)
    command = [
        sys.executable, "-m", "kstore", "pipeline", "stats", "quiet", "--engine", "spark",
        "-b", broker.bootstrap_servers, "--master", "local[1]",
        "--conf", "spark.driver.memory=512m", "--conf", "spark.sql.shuffle.partitions=1",
    ]  # fmt: skip
    said = [
        subprocess.run(
            [*command, *more], cwd=tmp_path, capture_output=True, text=True, check=True,
            timeout=240, env=os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        ).stderr
        for more in ([], ["--spark-output"])
    ]  # fmt: skip
    assert [line for line in said[0].splitlines() if "WARN" in line or "log" in line] == []
    assert "1 partitions, 1 offsets" in said[0]
    assert "WARN" in said[1]
