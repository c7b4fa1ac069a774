"""Fetches Apache Kafka's own jars from Maven, for the Kafka that conformance tests and benchmarks
compare kstore with.

`python tests/conformance/kafka_jars.py` fetches them and prints the folder. The folder is
$KSTORE_KAFKA_JARS, or ~/.cache/kstore/kafka-<version>. Fetching twice costs nothing, and two test
runs may do it at once. Nothing here starts Java.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

POM = Path(__file__).parent / "java" / "pom.xml"
STREAMS_POM = POM.with_name("streams.xml")
CONNECTOR_POM = POM.with_name("spark.xml")
CONNECTOR_VERSION = "4.2.0"
ICEBERG_POM = POM.with_name("iceberg.xml")
ICEBERG_VERSION = "1.12.0"
_VERSION_TAG = "{http://maven.apache.org/POM/4.0.0}kafka.version"


def _pom_version() -> str:
    node = next(ElementTree.parse(POM).getroot().iter(_VERSION_TAG))
    return (node.text or "").strip()


KAFKA_VERSION = _pom_version()


class KafkaUnavailableError(RuntimeError):
    """Kafka cannot be run here; the message says which program or file is missing and what to
    do.
    """


def jar_folder() -> Path:
    """Where the jars are, or will be."""
    named = os.environ.get("KSTORE_KAFKA_JARS")
    if named:
        return Path(named)
    return Path.home() / ".cache" / "kstore" / f"kafka-{KAFKA_VERSION}"


def java_program() -> str:
    """The path of `java`; raises KafkaUnavailableError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else None
    found = found or shutil.which("java")
    if not found:
        raise KafkaUnavailableError("no `java` on the PATH: install a Java 17 runtime (or newer)")
    return found


def _has(folder: Path, *jars: str) -> bool:
    # A folder is put in place with one rename, so the main jars show that all are there.
    return all((folder / f"{name}.jar").is_file() for name in jars)


def fetch_jars() -> Path:
    """The folder of jars, fetched first if need be; raises KafkaUnavailableError with the
    reason.
    """
    return fetch(POM, jar_folder(), f"kafka_2.13-{KAFKA_VERSION}", f"kafka-tools-{KAFKA_VERSION}")


def fetch(pom: Path, folder: Path, *jars: str) -> Path:
    """The folder with what the pom depends on, ``jars`` (names without ending) among it, fetched
    first if need be; raises KafkaUnavailableError with the reason.
    """
    if not _has(folder, *jars):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.parent / f".{folder.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _has(folder, *jars):
                _fetch_into(pom, folder, jars)
    return folder


def _fetch_into(pom: Path, folder: Path, jars: tuple[str, ...]) -> None:
    maven = shutil.which("mvn")
    if not maven:
        raise KafkaUnavailableError(
            f"{', '.join(jars)} are not in {folder} and there is no `mvn` to fetch them: install "
            "Maven, or point KSTORE_KAFKA_JARS at a folder of Kafka's libs"
        )
    if folder.exists() and any(folder.iterdir()):
        raise KafkaUnavailableError(
            f"{folder} is not empty and lacks {', '.join(jars)}: move it away"
        )
    with tempfile.TemporaryDirectory(prefix="kafka-jars-", dir=folder.parent) as scratch:
        target = Path(scratch) / "jars"
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
        if done.returncode != 0 or not _has(target, *jars):
            said = (done.stdout + done.stderr)[-2000:]
            raise KafkaUnavailableError(f"Maven did not fetch {', '.join(jars)}:\n{said}")
        if folder.exists():
            folder.rmdir()
        os.replace(target, folder)


def classpath() -> str:
    """All jars as a Java class path, fetched first if need be."""
    return os.pathsep.join(str(jar) for jar in sorted(fetch_jars().glob("*.jar")))


def streams_classpath() -> str:
    """As `classpath`, with Kafka Streams: in a separate folder beside the other jars, unless it is
    among them.
    """
    folder = jar_folder()
    streams = f"kafka-streams-{KAFKA_VERSION}"
    if not _has(folder, streams):
        folder = folder.with_name(f"{folder.name}-streams")
        fetch(STREAMS_POM, folder, streams)
    return os.pathsep.join([classpath(), *(str(jar) for jar in sorted(folder.glob("*.jar")))])


def connector_jars() -> list[Path]:
    """Spark's own Kafka connector with the jars that Spark lacks, for `spark.jars`; in a separate
    folder beside Kafka's.
    """
    connector = f"spark-sql-kafka-0-10_2.13-{CONNECTOR_VERSION}"
    folder = jar_folder().with_name(f"spark-kafka-{CONNECTOR_VERSION}")
    return sorted(fetch(CONNECTOR_POM, folder, connector).glob("*.jar"))


def iceberg_jars() -> list[Path]:
    """Iceberg's library and SQLite's driver, for `spark.jars`; also in a separate folder."""
    runtime = f"iceberg-spark-runtime-4.1_2.13-{ICEBERG_VERSION}"
    folder = jar_folder().with_name(f"iceberg-{ICEBERG_VERSION}")
    return sorted(fetch(ICEBERG_POM, folder, runtime).glob("*.jar"))


if __name__ == "__main__":
    try:
        print(fetch_jars())
    except KafkaUnavailableError as error:
        sys.exit(str(error))
