"""What an installed wheel must be able to do, without any extra: cibuildwheel runs it for each."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import kstore


def main() -> None:
    """Append, read, and read with the command line."""
    with tempfile.TemporaryDirectory() as folder:
        with kstore.open_log(Path(folder) / "log") as log:
            log.append_many([(b"key", b"%d" % n) for n in range(1000)])
            assert [record.value for record in log.records()][-1] == b"999"
        command = [sys.executable, "-m", "kstore", "log", "verify", f"{folder}/log", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    print(f"kstore {kstore.__version__} on Python {sys.version.split()[0]} works")


if __name__ == "__main__":
    main()
