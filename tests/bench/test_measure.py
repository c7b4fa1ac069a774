"""bench/measure.py: percentiles, turns that fail, and the CPU time of other processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.measure import (
    FamilyClock,
    NotServedError,
    Settings,
    Side,
    cpu_seconds,
    percentile,
    take_turns,
)

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([4.0, 1.0, 2.0, 3.0], 0.5, 2.0),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 101)), 1.0, 100),
        (list(range(1, 102)), 0.99, 100),
        ([7.0], 0.01, 7.0),
    ],
)
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values, share, expected):
    assert percentile(values, share) == expected


def test_there_is_no_percentile_of_nothing():
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 0.5)


def test_cases_take_turns_and_keep_every_figure_of_every_turn():
    order = []

    def case(name: str, rate: float) -> dict[str, float]:
        order.append(name)
        return {"rate": rate * len(order), "cost": 1.0}

    sides = take_turns("w", {"a": lambda: case("a", 1), "b": lambda: case("b", 10)}, 3)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert sides["a"].values == {"rate": [1, 3, 5], "cost": [1.0, 1.0, 1.0]}
    assert (sides["a"].median("rate"), sides["a"].spread("rate")) == (3, (1, 5))
    assert sides["b"].median("rate") == 40
    assert sides["b"].median("unknown") is None


def test_one_turn_has_no_spread():
    side = Side()
    side.add({"rate": 4.0})
    assert (side.median("rate"), side.spread("rate")) == (4.0, None)


def test_a_side_that_fails_once_is_failed_and_the_other_goes_on(capsys):
    calls = []

    def flaky() -> dict[str, float]:
        calls.append("flaky")
        if len(calls) == 2:
            raise RuntimeError("7 of 8 records were stored\nmore")
        return {"rate": 1.0}

    sides = take_turns("case", {"bad": flaky, "good": lambda: {"rate": 2.0}}, 3)
    assert calls == ["flaky", "flaky"]
    assert sides["bad"].state == "failed: 7 of 8 records were stored"
    assert sides["bad"].median("rate") is None
    assert sides["good"].values == {"rate": [2.0, 2.0, 2.0]}
    assert "case, bad, turn 2" in capsys.readouterr().err


def test_a_missing_api_is_not_a_failure():
    def lacking() -> dict[str, float]:
        raise NotServedError("EndTxn not advertised")

    sides = take_turns("case", {"a": lacking}, 2)
    assert sides["a"].state == "not served"


def test_an_interrupt_ends_the_turns():
    def interrupted() -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_turns("case", {"a": interrupted}, 2)


def test_cpu_time_includes_threads_and_children_that_ended_or_still_run():
    program = (
        "import subprocess, sys, threading\n"
        f"burn = {BURN.format(seconds=0.15)!r}\n"
        "thread = threading.Thread(target=exec, args=(burn,)); thread.start(); thread.join()\n"
        "subprocess.run([sys.executable, '-c', burn])\n"
        "child = subprocess.Popen([sys.executable, '-c', burn + 'print(1, flush=True); input()'],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print('ready', flush=True); input(); child.kill(); child.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        used = cpu_seconds(process.pid)
        process.communicate("\n")
    assert used >= 3 * 0.15 - 0.02  # /proc counts those that ended in steps of 10 ms
    assert cpu_seconds(process.pid) == 0.0  # it has ended


def test_what_a_child_has_used_stays_counted_when_nobody_waits_for_it():
    burning = BURN.format(seconds=0.15)
    script = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "ready, going = os.pipe(), os.pipe()\n"
        "if os.fork() == 0:\n"
        f"    exec({burning!r})\n"
        "    os.write(ready[1], b'.')\n"
        "    os.read(going[0], 1)\n"
        "    os._exit(0)\n"
        "os.read(ready[0], 1)\n"
        "print('burnt', flush=True)\n"
        "sys.stdin.readline()\n"
        "os.write(going[1], b'.')\n"
        "try:\n"
        "    os.wait()\n"
        "except ChildProcessError:\n"
        "    print('ended', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "burnt\n"
        clock = FamilyClock(process.pid)
        used = clock.seconds()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        assert clock.seconds() >= used >= 0.15
        assert cpu_seconds(process.pid) < used
        process.communicate("\n")


def test_cases_are_chosen_by_words_of_their_names(tmp_path):
    settings = Settings(quick=True, scratch=tmp_path, cases=["1 KB", "acks=1"])
    assert settings.wants("Java producer, 1 KB, acks=all")
    assert not settings.wants("Java producer, 100 B, acks=all")
    assert Settings(quick=True, scratch=tmp_path).wants("anything")
