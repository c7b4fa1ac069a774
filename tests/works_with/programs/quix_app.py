"""Quix Streams: counts words in a state store whose changelog is a topic, exactly once.

Arguments: bootstrap servers, source topic, target topic, state folder. Prints the counts that were
written to the target, as JSON.
"""

from __future__ import annotations

import json
import sys

from quixstreams import Application, State

bootstrap, source_name, target_name, folder = sys.argv[1:]
LINES = ["a b a", "b c", "a"]
WORDS = sum(len(line.split()) for line in LINES)

app = Application(
    broker_address=bootstrap, consumer_group=f"{source_name}-counter", state_dir=folder,
    auto_offset_reset="earliest", processing_guarantee="exactly-once", loglevel="WARNING",
)  # fmt: skip
source = app.topic(source_name, value_deserializer="str", value_serializer="str")
target = app.topic(target_name, value_serializer="json", value_deserializer="json")
with app.get_producer() as producer:
    for number, line in enumerate(LINES):
        message = source.serialize(key=str(number), value=line)
        producer.produce(source.name, value=message.value, key=message.key)


def count(word: str, state: State) -> dict[str, object]:
    """How often the word was seen so far."""
    seen = state.get("seen", 0) + 1
    state.set("seen", seen)
    return {"word": word, "seen": seen}


frame = app.dataframe(source)
frame = frame.apply(str.split, expand=True).group_by(lambda word: word, name="word")
frame = frame.apply(count, stateful=True).to_topic(target)
app.run(count=len(LINES) + WORDS, timeout=90)

counts: dict[str, int] = {}
with app.get_consumer(auto_commit_enable=False) as consumer:
    consumer.subscribe([target.name])
    for _ in range(WORDS):
        found = consumer.poll(30)
        assert found is not None, "a count is missing"
        assert found.error() is None, found.error()
        value = json.loads(found.value())
        counts[value["word"]] = max(counts.get(value["word"], 0), value["seen"])
print(json.dumps(counts))
