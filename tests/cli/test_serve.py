"""``kstore serve`` as a command line: its arguments, its errors and its output, without and with a
broker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.cli.serve import ServeArguments, UsageError, parse_arguments

HEAVY = ("typer", "rich", "numpy", "pyarrow", "hypothesis", "kstore.clients", "kstore.pipeline")


def kstore(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "kstore", *arguments], cwd=cwd, capture_output=True, text=True,
        env=os.environ | environment, timeout=60, check=False,
    )  # fmt: skip


def test_arguments_in_every_form() -> None:
    given = parse_arguments(
        ["a.properties", "--override", "x=1=2", "--override=y=", "--json", "--config-print"]
    )
    assert given == ServeArguments("a.properties", {"x": "1=2", "y": ""}, True, True, False)
    assert parse_arguments(["-h"]).help
    assert parse_arguments([]) == ServeArguments(None, {}, False, False, False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--override"], "--override needs a KEY=VALUE after it"),
        (["--override", "x"], "--override takes KEY=VALUE, such as num.partitions=4, not 'x'"),
        (["--override==1"], "--override takes KEY=VALUE, such as num.partitions=4, not '=1'"),
        (["--port", "1"], "kstore serve has no option --port; see kstore serve --help"),
        (["a", "b"], "kstore serve takes one file, and was given a and b"),
    ],
)
def test_a_wrong_argument_is_told(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(arguments)
    assert str(caught.value) == sentence


def test_help_has_an_example(tmp_path: Path) -> None:
    done = kstore("serve", "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Examples:\n  kstore serve\n" in done.stdout


def test_a_mistake_is_one_sentence_on_stderr_and_exit_code_2(tmp_path: Path) -> None:
    for arguments, sentence in (
        (["--overide", "a=b"], "kstore: kstore serve has no option --overide; see"),
        (
            ["--override", "num.partition=1"],
            "kstore: num.partition (override) is not a broker config",
        ),
        (["none.properties"], "kstore: none.properties can't be read: No such file or directory"),
    ):
        done = kstore("serve", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(sentence)
        assert done.stderr.count("\n") == 1


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
    assert process.stdout is not None
    return process, process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_says_when_it_is_ready_and_stops_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    process, line = start(tmp_path, "--json")
    try:
        ready = json.loads(line)
        assert ready["log_dirs"] == [str(tmp_path / "data")]
        assert ready["address"].startswith("localhost:")
        assert ready["ready_ms"] >= 0
    finally:
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")


def test_a_second_broker_on_the_same_data_names_the_first(tmp_path: Path) -> None:
    first, line = start(tmp_path)
    try:
        assert line.startswith("kstore ready on localhost:")
        second, nothing = start(tmp_path)
        _, errors = second.communicate(timeout=30)
        assert (second.returncode, nothing) == (1, "")
        assert errors.startswith("kstore: ")
        assert str(first.pid) in errors
        assert "Traceback" not in errors
    finally:
        first.terminate()
        first.communicate(timeout=30)


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
