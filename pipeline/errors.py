"""The one class of errors of the Spark source and sink. Its message names topic, partition and
offset as far as they are known, what is wrong, and what to do. It crosses from executors to the
driver as text, so all of it is in the message.
"""

from __future__ import annotations

__all__ = ["PipelineError"]


class PipelineError(Exception):
    """What the data pipeline can't go on with.

    ``problem`` is a sentence without its full stop, ``remedy`` another: what the user can do.
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
    """The error that another process pickled."""
    return PipelineError(problem, topic=topic, partition=partition, offset=offset, remedy=remedy)
