"""How a command fails: a message on stderr and an exit code. Only defects of kstore print a
traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec

__all__ = ["FAILED", "USAGE_ERROR", "explain", "fail", "guarded"]

P = ParamSpec("P")

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM. It stops a command as Ctrl-C does: clients close, and consumers leave their
    group.
    """


def fail(sentence: str, code: int = FAILED) -> int:
    """Write the message to stderr, after the command's name, and return the exit code."""
    print(f"kstore: {sentence}", file=sys.stderr)
    return code


def explain(error: BaseException, log: Callable[[str], object] | None = None) -> int:
    """Turn an error that a user can fix into a message and an exit code. ``log`` is called with the
    message if it does not belong on stderr.

    Raises all other errors again: they are defects, and the traceback helps.
    """
    from kstore.config import ConfigError

    if isinstance(error, KeyboardInterrupt):
        return TERMINATED if isinstance(error, _TerminatedError) else INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed the pipe (`kstore consume | head`). Nothing must be
        # written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    if isinstance(error, ConfigError):
        return _tell(str(error), USAGE_ERROR, log)
    if _is_ours(error):
        return _tell(getattr(error, "for_commands", None) or str(error), FAILED, log)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return _tell(f"{name}{error.strerror or error}", FAILED, log)
    raise error


def _tell(sentence: str, code: int, log: Callable[[str], object] | None) -> int:
    if log is None:
        return fail(sentence, code)
    log(sentence)
    return code


def _is_ours(error: BaseException) -> bool:
    """Whether the error is one of kstore's own types, whose text is for users."""
    modules = (
        "kstore.backup",
        "kstore.cli",
        "kstore.errors",
        "kstore.log",
        "kstore.clients",
        "kstore.net",
        "kstore.broker",
        "kstore.pipeline",
    )
    return type(error).__module__.startswith(modules)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Handle SIGTERM unless something else already does."""

    def end(*_: object) -> None:
        raise _TerminatedError

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that its errors are handled by explain()."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from kstore.cli.waiting import telling_waits

        try:
            with _sigterm_raises(), telling_waits():
                command(*args, **kwargs)
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - explain() raises defects
            raise SystemExit(explain(error)) from None

    return run
