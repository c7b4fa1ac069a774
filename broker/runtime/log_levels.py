"""The levels of this process's loggers, under Kafka's words for them: what BROKER_LOGGER resources
show and change. A change lasts as long as the process.
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
    """Every logger of the broker, and the root, with the level that is in force for it."""
    found = {ROOT: word(logging.getLogger().getEffectiveLevel())}
    for name in sorted(_names()):
        found[name] = word(logging.getLogger(name).getEffectiveLevel())
    return found


def check(name: str, level: str | None, removed: bool) -> tuple[int, str] | None:
    """Kafka's error code for a change that can't be made, and why not; None if it can."""
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
    """Set a logger's level; None takes its own away, so that its parent's holds."""
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
    """The word for a level, or for the next higher one that has a word."""
    return next((word for word, value in LEVELS.items() if level <= value), "FATAL")
