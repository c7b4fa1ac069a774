"""A standalone Spark cluster on one machine, from the installed pyspark: a master and workers, each
in its own process. It is for tests, and to try a job beyond local mode:

    python -m kstore.testing.spark_cluster --workers 2

prints the URL for `spark.master` and runs until it is interrupted. Applications must set the paths
of Python and of their modules (spark.executorEnv.*).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["SparkCluster", "SparkClusterError"]

START_TIMEOUT_S = 180.0
MASTER_READY = re.compile(r"Starting Spark master at (spark://\S+)")
WORKER_READY = re.compile(r"Successfully registered with master (spark://\S+)")
HOST = "127.0.0.1"


class SparkClusterError(RuntimeError):
    """A process of the cluster did not start. The message ends with its output."""


class SparkCluster:
    """A master and ``workers`` workers with one core each, with files below ``folder``. ``memory``
    is the memory of each worker for executors.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, workers: int = 2, memory: str = "1g"
    ) -> None:
        self.folder = Path(folder)
        self.url = ""
        """For spark.master."""
        self._workers = workers
        self._memory = memory
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start all processes, and wait until the workers are registered with the master."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            ports = ["--host", HOST, "--port", "0", "--webui-port", "0"]
            self.url = self._spawn("master", "master.Master", ports, MASTER_READY)
            for number in range(self._workers):
                name = f"worker-{number}"
                place = ["--work-dir", str(self.folder / name)]
                size = ["--cores", "1", "--memory", self._memory]
                self._spawn(name, "worker.Worker", [*ports, *place, *size, self.url], WORKER_READY)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all processes, and with them the applications on the cluster."""
        while self._processes:
            process = self._processes.pop()
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _spawn(self, name: str, what: str, arguments: list[str], ready: re.Pattern[str]) -> str:
        """Start a process. Returns what it prints, as soon as it has printed it."""
        log = self.folder / f"{name}.log"
        home = _spark_home()
        command = [
            str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *arguments
        ]  # fmt: skip
        settings = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=os.environ | settings,
            )  # fmt: skip
        self._processes.append(process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            found = ready.search(log.read_text(errors="replace"))
            if found is not None:
                return found[1]
            time.sleep(0.1)
        raise SparkClusterError(f"{name} did not start: {log.read_text(errors='replace')[-3000:]}")


def _spark_home() -> Path:
    """The folder of pyspark's jars; importing pyspark would take a second."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkClusterError("pyspark is not installed: pip install 'kstore[spark]'")
    return Path(found.origin).parent


def main() -> None:
    """Run a cluster until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description="A standalone Spark cluster on this machine.")
    parser.add_argument("--workers", type=int, default=2, help="worker processes, one core each")
    parser.add_argument("--memory", default="1g", help="memory of each worker, for executors")
    parser.add_argument("--folder", help="where logs and work go; a temporary one by default")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kstore-spark-") as scratch:
        folder = given.folder or scratch
        try:
            with SparkCluster(folder, workers=given.workers, memory=given.memory) as cluster:
                print(cluster.url, flush=True)
                signal.pause()
        except SparkClusterError as error:
            sys.exit(str(error))
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
