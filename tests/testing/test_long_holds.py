"""A test whose brokers hold their loops for a second fails (tests/conftest.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
CONFTEST = "from tests.conftest import pytest_runtest_teardown"
TESTS = """
import sys, time
import pytest
from kstore.broker_process import BrokerProcess

BROKER = '''
import asyncio, sys, time
import kstore.broker.app as app
from kstore.__main__ import main

async def hold(*_):
    end = time.thread_time() + 1.2
    while time.thread_time() < end:
        pass

app._close_idle = hold
sys.exit(main(sys.argv[1:]))
'''

def run(tmp_path):
    flags = ["serve", "--json", "--override=listeners=PLAINTEXT://127.0.0.1:0"]
    command = [sys.executable, "-c", BROKER, *flags, f"--override=log.dirs={tmp_path}/data"]
    process = BrokerProcess(command, log=tmp_path / "log")
    try:
        process.wait_ready(time.monotonic() + 60)
    finally:
        process.end()
    assert "the loop was held for " in process.output()
    assert "the loop has been held for " in process.output()

def test_held(tmp_path):
    run(tmp_path)

@pytest.mark.long_holds
def test_held_and_that_is_known(tmp_path):
    run(tmp_path)

def test_not_held():
    pass
"""


@pytest.mark.slow
def test_a_test_whose_broker_held_its_loop_fails_and_says_what_held_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers = long_holds\n")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_held *", "*held for * ms by hold*"])
