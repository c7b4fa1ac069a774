"""The pair of brokers that a comparison uses: started together, loaded in turns, and restarted if
one of them dies. It measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from bench import brokers, frames
from bench.brokers import KAFKA, KSTORE, Broker, exchange_once
from bench.measure import Figures, NotServedError, Settings, Side, progress, take_turns
from bench.report import Goal, Row

__all__ = ["LESS", "MORE", "Pair", "compared", "end_offset", "end_offsets", "require"]

MORE = Goal(1.0)
LESS = Goal(1.0, at_least=False)


class Pair:
    """Both brokers (or only kstore). A context manager that starts and stops them."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.settings = settings
        self.folder = folder
        self.running: dict[str, Broker] = {}
        self.loads: list[str] = []
        """The names of the rows that have used this pair so far."""

    def start(self) -> None:
        """Start the brokers that do not run. A broker that died is reported, and started on the
        same data.
        """
        if not self.running:
            self.running = brokers.make(self.folder, self.settings)
        for name, broker in self.running.items():
            if broker.process is not None and broker.process.poll() is None:
                continue
            if broker.process is not None:
                progress(f"{name} had ended with {broker.process.returncode}: started again")
                broker.kill()
            broker.start()

    def turns(
        self, what: str, case: Callable[[str, Broker], Figures], rounds: int
    ) -> dict[str, Side]:
        """Run a case on both in turns. It gets the broker's name and the broker."""
        self.start()
        cases = {
            name: lambda name=name, broker=broker: case(name, broker)
            for name, broker in self.running.items()
        }
        return take_turns(what, cases, rounds)

    def describe(self) -> dict[str, str]:
        """The settings that matter, as the running brokers report them."""
        found = {}
        for name, broker in self.running.items():
            try:
                found[f"settings of {name}"] = brokers.describe(broker)
            except Exception as error:  # noqa: BLE001 (the report says so)
                found[f"settings of {name}"] = f"unknown: {type(error).__name__} {error}"
        return found

    def close(self) -> None:
        """Stop both."""
        for broker in self.running.values():
            broker.stop()

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def compared(
    group: str,
    case: str,
    sides: Mapping[str, Side],
    figure: str,
    unit: str,
    goal: Goal,
    note: str = "",
) -> Row:
    """The row of one figure: kstore's median and spread, and Kafka's."""
    ours, theirs = sides[KSTORE], sides.get(KAFKA, Side())
    return Row(
        group,
        case,
        ours.median(figure),
        unit,
        KAFKA,
        theirs.median(figure),
        goal,
        note,
        ours.spread(figure),
        theirs.spread(figure),
        ours.state,
        theirs.state,
    )


def end_offsets(broker: Broker, topic: str, partitions: int) -> list[int]:
    """The log end offset of each partition, by ListOffsets. Raises RuntimeError for
    an error code.
    """
    frame = frames.latest_offsets(topic, range(partitions))
    found = frames.latest_offsets_answer(exchange_once(broker, frame))
    for partition, (code, _) in found.items():
        if code:
            raise RuntimeError(f"ListOffsets of {topic}-{partition} answered with error {code}")
    return [found[partition][1] for partition in range(partitions)]


def end_offset(broker: Broker, topic: str, partitions: int = 1) -> int:
    """The sum of a topic's log end offsets: the number of offsets that were assigned in it."""
    return sum(end_offsets(broker, topic, partitions))


def require(broker: Broker, apis: Mapping[int, str]) -> None:
    """Raise NotServedError unless the broker advertises all of these APIs (key to name)."""
    known = brokers.served(broker)
    missing = [name for key, name in apis.items() if key not in known]
    if missing:
        raise NotServedError(f"{', '.join(missing)} not advertised")
