"""`kstore console`: a console that no broker serves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from kstore.testing import Broker

CONSOLE = (sys.executable, "-m", "kstore", "console")


def test_it_serves_pages_until_it_is_interrupted(broker: Broker) -> None:
    command = [*CONSOLE, "-b", broker.address, "--listen", "http://127.0.0.1:0", "--json",
               "--read-only"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        try:
            url = json.loads(running.stdout.readline())["url"]
            with urllib.request.urlopen(f"{url}ui/topics", timeout=60) as answer:
                page = answer.read().decode()
            assert "<h1>Topics" in page
            assert "read-only" in page
        finally:
            running.send_signal(signal.SIGINT)
        running.wait(60)


@pytest.mark.slow
def test_without_a_login_it_listens_on_this_machine_alone() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "KSTORE_CONSOLE_TOKEN"}
    for url, words in (
        ("http://0.0.0.0:0", "can be reached by other machines"),
        ("ftp://127.0.0.1:0", "is not http://HOST:PORT"),
    ):
        done = subprocess.run(
            [*CONSOLE, "--listen", url], env=environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert words in " ".join(done.stderr.replace("│", " ").split())
