"""Stories: related requests that are sent to both brokers in the same order, and whose responses
are compared. The stories are in the modules of the families of APIs.

A story is a generator: it yields messages and receives the responses, so it cannot `yield from` a
list. A message uses the story's own connection, at the case's version if it is of the case's API,
else at the highest. `Step` selects another connection, another version, or a response that is
received later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from kstore.errors import ErrorCode, ProtocolError
from kstore.protocol.metadata.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message, Struct
from tests.conformance.probes.compare import Difference, differences, plain
from tests.conformance.probes.peer import Peer
from tests.conformance.probes.recorded.answers import Answers, as_recorded


class Step(NamedTuple):
    """A message with options: its connection, its version, and which part of its answer is
    compared.

    `wait=False` only sends; a later `Step(None, on=...)` takes the answer. `compare=False` is for
    requests that only prepare. `until` repeats the request, every 50 ms for at most 20 s, until the
    answer satisfies it; only the last answer counts.
    """

    message: Message | None
    on: str = ""
    version: int | None = None
    wait: bool = True
    compare: bool = True
    until: Callable[[Any], bool] | None = None


# None is sent if the broker gave no answer.
Story = Generator["Message | Step", Any, Any]


class Case(NamedTuple):
    """A story for both brokers, once for each version of one API that both serve."""

    name: str
    api_key: int
    story: Callable[[Peer, int], Story]
    min_version: int = 0
    max_version: int = 32767
    # Otherwise only the first and last versions: it changes much and takes long.
    every_version: bool = True


CASES: list[Case] = []
"""Those of all modules that were imported."""


def case(name: str, api_key: int, *versions: int, every_version: bool = True) -> Any:
    """Make a story a case; ``versions`` are the first and the last one, if not all are meant."""

    def add(story: Callable[[Peer, int], Story]) -> Callable[[Peer, int], Story]:
        CASES.append(Case(name, api_key, story, *versions, every_version=every_version))
        return story

    return add


def settle(peer: Peer, message: Message, answer: Any) -> None:
    """Wait until the data plane sees the change of a request: Kafka responds earlier."""
    if getattr(message, "validate_only", False):
        return
    gone = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if isinstance(message, CreateTopicsRequest):
        for name in _done(answer.topics):
            _wait(lambda name=name: peer.serves(name) == 0)
    elif isinstance(message, DeleteTopicsRequest):
        for name in _done(answer.responses):
            _wait(lambda name=name: peer.serves(name) == gone)
    elif isinstance(message, CreatePartitionsRequest):
        counts = {topic.name: topic.count for topic in message.topics}
        for name in _done(answer.results):
            _wait(lambda name=name: peer.partitions(name) >= counts[name])


def _done(rows: list[Any]) -> list[str]:
    return [row.name for row in rows if row.error_code == 0]


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def _strings(value: Any) -> Iterator[str]:
    """All texts of a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, Struct):
        for name in value.SPECS:
            yield from _strings(getattr(value, name))


class Teller:
    """Runs one story at one version on one broker."""

    def __init__(self, peer: Peer, case: Case, version: int) -> None:
        self.peer = peer
        self.case = case
        self.version = version
        self._awaited: dict[str, list[tuple[Message, int]]] = {}
        self._named: set[str] = set()

    def _owns(self, label: str) -> bool:
        """Whether a row of an answer belongs to this story: others run at the same time."""
        return not label.startswith(("probe-", "pm-", "pd-")) or label in self._named

    def tell(self) -> list[Any]:
        """The normalized answers; a closed connection is the answer "closed"."""
        answers: list[Any] = []
        self.peer.reset()
        story = self.case.story(self.peer, self.version)
        with suppress(StopIteration):
            yielded = next(story)
            while True:
                step = yielded if isinstance(yielded, Step) else Step(yielded)
                name, answer, said = self._take(step)
                if step.compare and said is not None:
                    answers.append({name: said})
                yielded = story.send(answer)
        return answers

    def _take(self, step: Step) -> tuple[str, Any, Any]:
        if step.message is None:
            message, version = self._awaited[step.on].pop(0)
        else:
            message, version = step.message, self._version(step)
        name = type(message).__name__
        self._named |= set(_strings(message))
        try:
            if step.message is not None:
                self.peer.send(message, version, step.on)
                if not step.wait:
                    self._awaited.setdefault(step.on, []).append((message, version))
                    return name, None, None
            answer: Any = self.peer.receive(message, version, step.on)
            if step.until is not None:
                answer = self._repeat(step, message, version, answer)
            settle(self.peer, message, answer)
        except ConnectionError:
            self.peer.reset()
            return name, None, "closed"
        except TimeoutError:
            self.peer.reset()
            return name, None, "no answer"
        except ProtocolError as error:
            self.peer.reset()
            return name, None, f"not understood: {error}"
        return name, answer, plain(answer, ours=self._owns)

    def _version(self, step: Step) -> int:
        assert step.message is not None
        if step.version is not None:
            return step.version
        if self.case.api_key == step.message.API_KEY:
            return self.version
        return self.peer.version_for(step.message.API_KEY)

    def _repeat(self, step: Step, message: Message, version: int, answer: Any) -> Any:
        assert step.until is not None
        deadline = time.monotonic() + 20
        while not step.until(answer) and time.monotonic() < deadline:
            time.sleep(0.05)
            answer = self.peer.ask(message, version, step.on)
        return answer


def run_case(case: Case, kafka: Peer | Answers, kstore: Peer) -> Iterator[Difference]:
    """Run the story on both brokers at every version that they share."""
    if case.api_key not in kstore.versions:
        yield Difference(case.name, -1, "ApiVersions", kafka.versions[case.api_key], None)
        return
    ranges = [kafka.versions[case.api_key], kstore.versions[case.api_key]]
    ranges.append((APIS[case.api_key].min_version, APIS[case.api_key].max_version))
    first = max(case.min_version, *(low for low, _ in ranges))
    last = min(case.max_version, *(high for _, high in ranges))
    versions = range(first, last + 1) if case.every_version else sorted({first, last})
    for version in versions:
        key = f"{case.name} v{version}"
        if isinstance(kafka, Answers):
            told = kafka.said(key)
        else:
            told = kafka.noted[key] = as_recorded(Teller(kafka, case, version).tell())
        answered = as_recorded(Teller(kstore, case, version).tell())
        for path, theirs, ours in differences(told, answered):
            yield Difference(case.name, version, path, theirs, ours)
