"""The levels of this process's loggers, with Kafka's names: BROKER_LOGGER resources show and change
them. A change lasts until the process ends.
"""

from __future__ import annotations

import logging

from kstore.errors import ErrorCode

__all__ = ["check", "levels", "set_level", "word"]

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """Every logger of the broker, and the root, with its effective level."""
    found = {ROOT: word(logging.getLogger().getEffectiveLevel())}
    for name in sorted(_names()):
        found[name] = word(logging.getLogger(name).getEffectiveLevel())
    return found


def check(name: str, level: str | None, removed: bool) -> tuple[int, str] | None:
    """Kafka's error code for an invalid change, and why; None if it is valid."""
    if name != ROOT and name not in _names():
        return ErrorCode.INVALID_CONFIG, f"The broker has no logger '{name}'."
    if removed:
        if name == ROOT:
            return (
                ErrorCode.INVALID_REQUEST,
                "The root logger must have a level; set another one instead.",
            )
        return None
    if level not in LEVELS:
        return (
            ErrorCode.INVALID_CONFIG,
            f"The logger {name} can't log at '{level}'; use one of {', '.join(LEVELS)}.",
        )
    return None


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level; None removes it, so that its parent's applies."""
    logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _names() -> list[str]:
    known = logging.getLogger().manager.loggerDict
    return [
        name
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and name.split(".")[0] == "kstore"
    ]


def word(level: int) -> str:
    """The name of a level. A level without a name has the name of the next higher one."""
    return next((word for word, value in LEVELS.items() if level <= value), "FATAL")
