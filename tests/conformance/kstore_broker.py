"""Runs `kstore serve` in a separate process, with the same methods as `KafkaBroker`: start, stop,
kill, pid, bootstrap, log_dir. Conformance tests and benchmarks use it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kstore import broker_process
from tests.beside import forked_brokers
from tests.conformance.broker_process import BrokerDiedError, BrokerProcess

__all__ = ["QUICK_GROUPS", "BrokerDiedError", "KstoreBroker"]

ROOT = Path(__file__).parents[2]
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
"""Settings with which members soon get their partitions."""


class KstoreBroker(BrokerProcess):
    """One `kstore serve` below `folder`."""

    LOG_FOLDER = "kstore-logs"
    OUTPUT = "kstore.err"
    HAS_READY_LINE = True
    WORKING_FOLDER = ROOT
    may_be_forked = True
    """False: the test looks at the process's command line, for example."""

    def command(self) -> list[str]:
        """The command line, as a user would type it."""
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.log_dir),
        } | self.overrides
        flags = [f"--override={name}={value}" for name, value in settings.items()]
        return [sys.executable, "-m", "kstore", "serve", *flags]

    def launcher(self) -> type[broker_process.BrokerProcess]:
        """In most tests it is forked, unless its environment or its command is unusual."""
        is_usual = not self._environment and type(self).command is KstoreBroker.command
        if forked_brokers.IS_WANTED and self.may_be_forked and is_usual:
            return forked_brokers.ForkedBroker
        return super().launcher()

    def after_start(self, timeout_s: float) -> None:
        """It answers before it has joined a cluster: the ready line says that it has joined."""
        self.launched.wait_ready(time.monotonic() + timeout_s)
