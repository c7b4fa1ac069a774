"""FastStream, Quix Streams, Faust and Celery, each with a small program as their pages show it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from kstore.clients import AdminClient
from tests.conformance.kstore_broker import KstoreBroker
from tests.works_with.environments import environment, run

pytestmark = [pytest.mark.nightly, pytest.mark.slow]


def last_json(written: str) -> object:
    """The JSON of the last line that has some; frameworks write log lines around it."""
    lines = [line for line in written.splitlines() if line.rstrip().endswith(("]", "}"))]
    start = min(at for at in (lines[-1].rfind("["), lines[-1].rfind("{")) if at >= 0)
    return json.loads(lines[-1][start:])


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_faststream(broker: KstoreBroker, tmp_path: Path, client: str) -> None:
    """Two subscribers in groups, a publisher, and a Pydantic model as the value."""
    python = environment("faststream", ["faststream[confluent,kafka]==0.7.8"])
    name = f"faststream-{uuid4().hex[:8]}"
    arguments = (client, broker.bootstrap, f"{name}-in", f"{name}-out")
    written = run(python, "faststream_app.py", *arguments, folder=tmp_path)
    assert last_json(written) == [3 * number for number in range(20)]


def test_quix_streams(broker: KstoreBroker, tmp_path: Path) -> None:
    """A repartition topic, and a store with a changelog, exactly once by transactions."""
    python = environment("quixstreams", ["quixstreams==3.28.1"])
    name = f"quix-{uuid4().hex[:8]}"
    arguments = (broker.bootstrap, f"{name}-in", f"{name}-out", str(tmp_path / "state"))
    written = run(python, "quix_app.py", *arguments, folder=tmp_path)
    assert last_json(written) == {"a": 3, "b": 2, "c": 1}


def test_faust(broker: KstoreBroker, tmp_path: Path) -> None:
    """A table survives a restart, since it is read from its changelog again."""
    python = environment("faust", ["faust-streaming==0.15.3"])
    name = f"faust-{uuid4().hex[:8]}"
    with AdminClient(broker.bootstrap) as admin:
        admin.create_topics({f"{name}-clicks": 2})
    settings = {"BOOTSTRAP": broker.bootstrap, "NAME": name, "FOLDER": str(tmp_path)}
    for clicks in (10, 20):
        written = run(python, "faust_app.py", "worker", "--without-web", "-l", "warn",
                      folder=tmp_path, env=settings)  # fmt: skip
        counts = next(line for line in written.splitlines() if '"page-0"' in line)
        found = json.loads(counts[counts.index("{") : counts.rindex("}") + 1])
        assert found == {f"page-{number}": clicks for number in range(5)}


def test_celery(broker: KstoreBroker, tmp_path: Path) -> None:
    """A worker takes its tasks through kombu's transport for Kafka."""
    python = environment("celery", ["celery==5.7.0", "kombu[confluentkafka]==5.7.0"])
    (tmp_path / "results").mkdir()
    arguments = (broker.bootstrap, f"celery-{uuid4().hex[:8]}", str(tmp_path / "results"))
    written = run(python, "celery_app.py", *arguments, folder=tmp_path)
    assert last_json(written) == [2 * number for number in range(10)]
