"""Faust: an agent counts clicks by page in a table, whose changelog is a topic.

From the environment: BOOTSTRAP, NAME of the app, FOLDER for its data. Prints the counts as JSON
once all clicks of this run and of earlier runs are counted: the table comes from the changelog.
"""

from __future__ import annotations

import json
import os
import signal

import faust

NAME = os.environ["NAME"]
PAGES = 5
CLICKS = 10
app = faust.App(NAME, broker=f"kafka://{os.environ['BOOTSTRAP']}", datadir=os.environ["FOLDER"],
                store="memory://", topic_partitions=2)  # fmt: skip
clicks = app.topic(f"{NAME}-clicks", key_type=str, value_type=int, partitions=2)
table = app.Table(f"{NAME}-counts", default=int, partitions=2)


@app.agent(clicks)
async def count(stream: faust.StreamT) -> None:
    async for page, click in stream.items():
        table[page] += click


@app.task
async def click() -> None:
    for number in range(PAGES * CLICKS):
        await clicks.send(key=f"page-{number % PAGES}", value=1)


@app.timer(interval=1.0)
async def look() -> None:
    counts = dict(table.items())
    total = sum(counts.values())
    if total and total % (PAGES * CLICKS) == 0:
        print(json.dumps(dict(sorted(counts.items()))), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    app.main()
