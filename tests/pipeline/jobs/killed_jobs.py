"""Runs the commands of `kstore pipeline`, each with its JVM and workers, and kills them (kill
-9).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.pipeline.own_processes import ROOT, OwnProcesses

RUN_TIMEOUT_S = 150.0


@dataclass(frozen=True)
class Jobs:
    """Runs `kstore pipeline` as users do; all files that it writes are in the folder."""

    folder: Path

    def start(self, *arguments: str) -> OwnProcesses:
        """The running command."""
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        command = [
            sys.executable, "-m", "kstore", "pipeline", *arguments, "--master", "local[2]",
            "--conf", "spark.driver.memory=512m", "--conf", f"spark.local.dir={temporary}",
            "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf",
            "spark.driver.host=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=2",
            # For so few rows, compiling a query takes longer than interpreting it.
            "--conf", "spark.sql.codegen.wholeStage=false",
            "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN",
        ]  # fmt: skip
        env = {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1"}
        return OwnProcesses(command, self._log, env)

    def kill_when(self, reached: Callable[[], bool], *arguments: str) -> None:
        """Start it, and kill all its processes when it has reached that point."""
        job = self.start(*arguments)
        try:
            deadline = time.monotonic() + RUN_TIMEOUT_S
            while job.process.poll() is None and not reached():
                assert time.monotonic() < deadline, self.said()
                time.sleep(0.002)
        finally:
            code = job.end()
        assert code == -9, f"it ended before it was killed:\n{self.said()}"

    def finish(self, *arguments: str) -> None:
        """Run it to its end, which must be successful."""
        job = self.start(*arguments)
        try:
            code = job.process.wait(RUN_TIMEOUT_S)
        finally:
            job.end()
        assert code == 0, self.said()

    @property
    def _log(self) -> Path:
        return self.folder / "jobs.log"

    def said(self) -> str:
        """The last output of the jobs."""
        return self._log.read_text()[-4000:]


def late(reached: Callable[[], bool], late_s: float) -> Callable[[], bool]:
    """Whether it was reached and some time has passed since."""
    began: list[float] = []

    def is_later() -> bool:
        if not began and reached():
            began.append(time.monotonic())
        return bool(began) and time.monotonic() > began[0] + late_s

    return is_later
