"""The format of the log: a line for each event, as text and JSON, whatever the message is."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from kstore.broker.runtime.log_lines import JsonFormatter, TextFormatter


def event(message: str, *args: object, level: int = logging.INFO, **more: object):
    record = logging.LogRecord("kstore.broker", level, "file.py", 1, message, args, None)
    record.__dict__.update(more)
    return record


def caught(message: str = "it broke") -> tuple[type[ValueError], ValueError, object]:
    try:
        raise ValueError(message)
    except ValueError as error:
        return (ValueError, error, error.__traceback__)


def test_text_is_time_level_and_message():
    line = TextFormatter().format(event("%d topics", 3))
    assert line.endswith(" INFO 3 topics")
    assert len(line.split(" ")[1]) == len("17:00:00,123")


def test_in_text_no_further_line_of_an_event_looks_like_an_event():
    text = TextFormatter().format(
        event("a\n2026-01-01 00:00:00,000 INFO b\r\nc", exc_info=caught())
    )
    first, *rest = text.splitlines()
    assert first.endswith(" INFO a")
    assert all(line.startswith("  | ") for line in rest)
    assert rest[-1] == "  | ValueError: it broke"


def test_in_text_a_line_that_is_marked_already_is_left():
    assert TextFormatter().format(event("a\n  | b")).endswith("INFO a\n  | b")


def test_json_is_one_object_with_time_level_logger_and_message():
    record = event("%s", "a\nb \x1b[31m é", level=logging.WARNING)
    record.created, record.msecs = 1_700_000_000.25, 250.0
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARN",
        "logger": "kstore.broker",
        "message": "a\nb \x1b[31m é",
    }


@pytest.mark.parametrize(
    ("level", "word"),
    [(5, "TRACE"), (10, "DEBUG"), (20, "INFO"), (30, "WARN"), (40, "ERROR"), (50, "FATAL")],
)
def test_json_has_the_levels_that_kafka_configs_sets(level, word):
    assert json.loads(JsonFormatter().format(event("x", level=level)))["level"] == word


def test_in_json_a_traceback_is_a_part_of_its_event():
    line = JsonFormatter().format(event("x", exc_info=caught("line\nbreak")))
    assert "\n" not in line
    error = json.loads(line)["error"]
    assert (error["type"], error["message"]) == ("builtins.ValueError", "line\nbreak")
    assert error["traceback"].startswith("Traceback (most recent call last):\n")


def test_in_json_an_error_that_stands_in_the_text_is_not_told_twice():
    _, problem, _ = caught()
    told = json.loads(JsonFormatter().format(event("closing\n  | Traceback", problem=problem)))
    assert told["message"] == "closing"
    assert told["error"]["message"] == "it broke"


def test_json_has_the_fields_of_an_event():
    told = json.loads(JsonFormatter().format(event("x", fields={"api": "Fetch", "total_ms": 1.5})))
    assert (told["api"], told["total_ms"]) == ("Fetch", 1.5)


def test_in_json_what_nothing_handles_is_an_event_too():
    code = """
import threading, warnings
from kstore.broker.runtime.log_lines import start_logging
start_logging("json")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
warnings.warn("beware")
raise ValueError("the end")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert [each.get("error", {}).get("type") for each in told] == [
        "builtins.ZeroDivisionError", None, "builtins.ValueError",
    ]  # fmt: skip
    assert "beware" in told[1]["message"]
