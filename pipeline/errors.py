"""The only error class of the Spark source and sink. Its message has topic, partition and offset if
they are known, the problem, and the remedy. Executors send errors to the driver as text, so the
message contains everything.

Spark's Python workers send an error to the JVM as a traceback that ends with the message. A
PipelineError needs no traceback: `message_first` makes the worker send only the message.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kstore.errors import ErrorCode, KafkaError

__all__ = ["PipelineError", "message_first", "remedy_for"]

C = TypeVar("C", bound=type)
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""PySpark reads it from a worker's environment when it sends an error."""

_REMEDIES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Create the topic, or correct its name in the options",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Correct the topic's name in the options",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "Ask an administrator to allow this user READ on the topic: kstore acl add --consumer"
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Check kafka.sasl.*: mechanism, user and password",
}


def remedy_for(error: KafkaError, otherwise: str) -> str:
    """What a user can do about a broker's error."""
    return _REMEDIES.get(error.code, otherwise)


class PipelineError(Exception):
    """An error of the data pipeline.

    ``problem`` and ``remedy`` are sentences without a full stop; the remedy says what the user can
    do.
    """

    def __init__(
        self,
        problem: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        remedy: str = "",
    ) -> None:
        self.problem = problem
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.remedy = remedy
        super().__init__(self._text())

    def _text(self) -> str:
        """Where, what, and what to do."""
        named = (("topic", self.topic), ("partition", self.partition), ("offset", self.offset))
        place = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        text = f"{place}: {self.problem}." if place else f"{self.problem}."
        return f"{text} {self.remedy}." if self.remedy else text

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self.problem, self.topic, self.partition, self.offset, self.remedy)


def _rebuilt(
    problem: str, topic: str | None, partition: int | None, offset: int | None, remedy: str
) -> PipelineError:
    """Unpickle an error of another process."""
    return PipelineError(problem, topic=topic, partition=partition, offset=offset, remedy=remedy)


def message_first(cls: C) -> C:
    """Class decorator for classes that Spark calls in its workers: a PipelineError from one of the
    public methods reaches the user without the traceback, so that the message comes first.
    """
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _wrapped(method))
    return cls


def _wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def iterate(*args: Any, **keywords: Any) -> Iterator[Any]:
            with _no_traceback():
                yield from method(*args, **keywords)

        return iterate

    @functools.wraps(method)
    def call(*args: Any, **keywords: Any) -> Any:
        with _no_traceback():
            return method(*args, **keywords)

    return call


@contextmanager
def _no_traceback() -> Iterator[None]:
    """The environment belongs to the worker, and a worker exits after an error."""
    try:
        yield
    except PipelineError:
        if _is_worker():
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


def _is_worker() -> bool:
    """Whether PySpark started this process."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
