"""The format of this process's log: one event per line, as text or as JSON.

In text a traceback follows its event on separate lines, which begin with two spaces and "| ", so
that no other line is mistaken for an event. In JSON the traceback is a part of its event. This file
does not decide what is logged.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from kstore.broker.runtime.log_levels import word

if TYPE_CHECKING:
    import threading
    from types import TracebackType

__all__ = ["JSON", "TEXT", "JsonFormatter", "TextFormatter", "printable", "start_logging"]

TEXT, JSON = "text", "json"
CONTINUED = "  | "
UNCAUGHT = "an unhandled error"
log = logging.getLogger("kstore.broker")


def start_logging(form: str) -> None:
    """Write the log to stderr from now on: TEXT or JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == JSON else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if form == JSON:
        logging.captureWarnings(True)
        sys.excepthook = _uncaught
        import threading

        threading.excepthook = _uncaught_in_thread


class TextFormatter(logging.Formatter):
    """Time, level and message; further lines of a message or a traceback are marked as such."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The event as text."""
        text = super().format(record)
        if "\n" not in text and "\r" not in text:
            return text
        first, *rest = text.splitlines()
        marked = (line if line.startswith(CONTINUED) else CONTINUED + line for line in rest)
        return "\n".join((first, *marked))


class JsonFormatter(logging.Formatter):
    """One JSON object: time (UTC), level in Kafka's names, logger and message; an error with its
    type, message and traceback; and the fields of the event.

    Fields are passed as ``extra={"fields": {...}}``, an error that is already in the text as
    ``extra={"problem": error}``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The event as one line."""
        import json

        event: dict[str, Any] = {
            "time": f"{_utc(record.created)}.{int(record.msecs):03d}Z",
            "level": word(record.levelno),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if fields:
            event |= fields
        problem = getattr(record, "problem", None)
        if problem is not None:
            event["message"] = event["message"].partition("\n")[0]
        elif record.exc_info:
            problem = record.exc_info[1]
        if problem is not None:
            event["error"] = _error(problem)
        return json.dumps(event, default=str)


def printable(text: str) -> str:
    """Escape line ends, colours and other control characters."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _error(problem: BaseException) -> dict[str, str]:
    from traceback import format_exception

    kind = type(problem)
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "message": str(problem),
        "traceback": "".join(format_exception(problem)),
    }


def _uncaught(
    kind: type[BaseException], problem: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, problem, trace)
        return
    log.critical(UNCAUGHT, exc_info=(kind, problem, trace))


def _uncaught_in_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_value is not None and not issubclass(found.exc_type, SystemExit):
        log.critical(UNCAUGHT, exc_info=(found.exc_type, found.exc_value, found.exc_traceback))
