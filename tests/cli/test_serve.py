"""``kstore serve`` on the command line: its arguments, its errors and its output, without and with
a broker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.cli.app import run
from kstore.cli.serve import ServeArguments, plain_arguments
from tests.cli.shell import run_here

HEAVY = ("typer", "rich", "numpy", "pyarrow", "hypothesis", "kstore.clients", "kstore.pipeline")


def kstore(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "kstore", *arguments], cwd=cwd, capture_output=True, text=True,
        env=os.environ | environment, timeout=60, check=False,
    )  # fmt: skip


def told(*arguments: str, folder: Path) -> tuple[int, str, str]:
    """The same in this process, for what starts no broker: exit code, output and errors."""
    done = run_here(*arguments, folder=folder)
    return done.code, done.output.decode(), done.errors.decode()


def test_a_plain_command_line_is_read_without_a_library() -> None:
    given = plain_arguments(
        ["a.properties", "--override", "x=1=2", "--override=y=", "--json", "--config-print"]
    )
    assert given == ServeArguments("a.properties", {"x": "1=2", "y": ""}, True, True)
    assert plain_arguments([]) == ServeArguments(None, {}, False, False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], ["-h"], ["--override"], ["--override", "x"], ["--override==1"],
        ["--port", "1"], ["a", "b"], ["--json=1"], ["--"],
    ],
)  # fmt: skip
def test_anything_else_is_the_parsers(arguments: list[str]) -> None:
    assert plain_arguments(arguments) is None


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["a.properties"], ["--override", "x=1=2", "--override=y=", "--json"],
        ["--config-print", "a.properties", "--override", " x =1"],
    ],
)  # fmt: skip
def test_the_parser_reads_the_same(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[ServeArguments] = []

    def run_serve(given: ServeArguments) -> int:
        read.append(given)
        return 0

    monkeypatch.setattr("kstore.cli.serve_command.run", run_serve)
    assert run(["serve", *arguments]) == 0
    assert read == [plain_arguments(arguments)]


def test_help_has_an_example(tmp_path: Path) -> None:
    for word in ("--help", "-h"):
        code, output, errors = told("serve", word, folder=tmp_path)
        assert (code, errors) == (0, "")
        assert output.startswith("Usage: kstore serve [OPTIONS] [server.properties]")
        assert "Example: kstore serve --override log.dirs=./data" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--overide", "a=b"], "No such option: --overide"),
        (["--override", "x"], "'x' is not KEY=VALUE, such as num.partitions=4"),
        (["--override"], "Option '--override' requires an argument"),
        (["a", "b"], "Got unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_is_told_as_by_the_others(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    code, output, errors = told("serve", *arguments, folder=tmp_path)
    assert (code, output) == (2, "")
    assert sentence in errors


def test_a_mistake_is_one_sentence_on_stderr_and_exit_code_2(tmp_path: Path) -> None:
    for arguments, sentence in (
        (
            ["--override", "num.partition=1"],
            "kstore: num.partition (override) is not a broker config",
        ),
        (["none.properties"], "kstore: none.properties can't be read: No such file or directory"),
    ):
        code, output, errors = told("serve", *arguments, folder=tmp_path)
        assert (code, output) == (2, "")
        assert errors.startswith(sentence)
        assert errors.count("\n") == 1


def test_config_print_shows_each_value_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "s.properties").write_text("num.partitions=2\nnum.io.threads=8\n")
    arguments = ("serve", "s.properties", "--config-print", "--override", "log.dirs=/d")
    done = kstore(*arguments, cwd=tmp_path, KSTORE_MESSAGE_MAX_BYTES="5000")
    assert done.returncode == 0
    lines = {line.partition("=")[0]: line for line in done.stdout.splitlines()}
    assert lines["num.partitions"].split() == [
        "num.partitions=2", "#", "file", "s.properties", "line", "1",
    ]  # fmt: skip
    assert lines["message.max.bytes"].endswith("# environment KSTORE_MESSAGE_MAX_BYTES")
    assert lines["log.dirs"].endswith("# override")
    assert done.stderr.startswith("kstore: num.io.threads (file s.properties line 2) has no effect")
    rows = json.loads(kstore(*arguments, "--json", cwd=tmp_path).stdout)
    assert {"name": "log.dirs", "value": "/d", "source": "override"} in rows


def test_a_secret_among_the_arguments_is_warned_of(tmp_path: Path) -> None:
    arguments = ["--override", "ssl.key.password=Hush-1", "--override", "num.partitions=2"]
    done = kstore("serve", "--config-print", *arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == (
        "kstore: ssl.key.password is a secret, and --override shows it in the list of processes "
        "and the shell's history: put it into the properties file (mode 600) or the environment\n"
    )
    done = kstore("serve", "--config-print", cwd=tmp_path, KSTORE_SSL_KEY_PASSWORD="Hush-1")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_itself_answers_without_the_other_commands(tmp_path: Path) -> None:
    code = (
        "import sys, kstore.__main__ as m\nm.main(['serve', '--config-print'])\n"
        f"print('loaded', [n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == "loaded []\n"


def start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a broker on a free port and return it with its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kstore", "serve", "--override", f"log.dirs={folder / 'data'}",
         "--override", "listeners=PLAINTEXT://localhost:0", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return process, process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_says_when_it_is_ready_and_stops_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    # Beside other work, a disk may hold the loop for 50 ms, which would be logged on stderr.
    process, line = start(tmp_path, "--json", "--override", "kstore.slow.loop.ms=0")
    try:
        ready = json.loads(line)
        assert ready["log_dirs"] == [str(tmp_path / "data")]
        assert ready["address"].startswith("localhost:")
        assert ready["ready_ms"] >= 0
    finally:
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.slow
def test_a_second_broker_on_the_same_data_names_the_first(tmp_path: Path) -> None:
    first, line = start(tmp_path)
    try:
        assert line.startswith("kstore ready on localhost:")
        second, nothing = start(tmp_path)
        _, errors = second.communicate(timeout=30)
        assert (second.returncode, nothing) == (1, "")
        assert errors.startswith("kstore: ")
        assert str(first.pid) in errors
        assert errors.endswith(": stop it, or use another folder\n")
        assert "Traceback" not in errors
    finally:
        first.terminate()
        first.communicate(timeout=30)


@pytest.mark.slow
def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    first, line = start(tmp_path)
    try:
        port = line.split(" in ")[0].rpartition(":")[2]
        listener = f"listeners=PLAINTEXT://localhost:{port}"
        data = f"log.dirs={tmp_path / 'other'}"
        done = kstore("serve", "--override", listener, "--override", data, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert port in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        first.terminate()
        first.communicate(timeout=30)
