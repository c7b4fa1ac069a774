"""A MariaDB server of the test's own, with row-based binary logs, as change data capture wants it.

It says that it is MySQL 5.7.10, because Debezium's connector for MariaDB is not in the registry
that we use, and the one for MySQL asks for statements of newer versions that MariaDB lacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

import pytest

from tests.beside.waiting import until
from tests.conformance.broker_process import free_port

PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb")


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is missing: Debian's mariadb-server-core and mariadb-client-core")
    return found


class MariaDb:
    """Runs until it is left. `port` is on 127.0.0.1; the user is `capture`, without a password."""

    def __init__(self, folder: Path) -> None:
        self._server, install, self._client = map(_program, PROGRAMS)
        self.port, self._folder = free_port(), folder
        folder.mkdir(parents=True)
        data, first = folder / "data", folder / "first.sql"
        first.write_text(
            "CREATE USER capture@'127.0.0.1';\nGRANT ALL ON *.* TO capture@'127.0.0.1';\n"
        )
        subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", *self._user(), "--skip-test-db"],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        self._flags = [
            "--no-defaults", f"--datadir={data}", *self._user(), f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={folder}/socket", f"--init-file={first}",
            "--skip-name-resolve", "--server-id=1", "--log-bin=changes", "--binlog-format=ROW",
            "--binlog-row-image=FULL", "--version=5.7.10-log", "--innodb-buffer-pool-size=32M",
        ]  # fmt: skip

    @staticmethod
    def _user() -> list[str]:
        """It refuses to run as root unless asked."""
        return ["--user=root"] if os.getuid() == 0 else []

    def __enter__(self) -> Self:
        with open(self._folder / "log", "wb") as log:
            self._process = subprocess.Popen([self._server, *self._flags], stdout=log, stderr=log)

        def answers() -> bool:
            assert self._process.poll() is None, (self._folder / "log").read_text()[-4000:]
            return self._ask("SELECT 1").returncode == 0

        until(answers, "MariaDB answers", 60)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, statements: str) -> str:
        """What the statements give, a row a line with tabs."""
        done = self._ask(statements)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _ask(self, statements: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._client, "--no-defaults", "-N", "-h127.0.0.1", f"-P{self.port}", "-ucapture",
             "-e", statements],
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
