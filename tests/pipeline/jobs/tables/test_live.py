"""Files that other writers have added to a table of the latest values. Their rows cannot be found,
so they could not be replaced. Java's objects are doubles here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.tables.iceberg import Live, Table

COLUMNS = ("key", "partition", "timestamp")


def file(path: str, *, spec: int = 0, form: str = "PARQUET", content: str = "DATA") -> Any:
    return SimpleNamespace(
        location=lambda: path, specId=lambda: spec, format=lambda: form, content=lambda: content
    )


def live(data: Any, *deletes: Any, columns: tuple[str, ...] = COLUMNS) -> list[Live]:
    left = [SimpleNamespace(file=lambda: data, deletes=lambda: deletes)]
    tasks = SimpleNamespace(hasNext=lambda: bool(left), next=left.pop)
    files = SimpleNamespace(iterator=lambda: tasks, close=lambda: None)
    scan = SimpleNamespace(useSnapshot=lambda snapshot: scan, planFiles=lambda: files)
    schema = SimpleNamespace(findField=lambda name: 1 if name in columns else None)
    made: Any = SimpleNamespace(newScan=lambda: scan, schema=lambda: schema)
    return Table(None, made, "lake.shop.t").live(7)  # type: ignore[arg-type]


def test_files_with_the_deletes_of_their_rows() -> None:
    deletes = file("b", content="POSITION_DELETES")
    assert live(file("a"), deletes) == [Live("a", ("b",))]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((file("a", spec=1),), "files of another partitioning or format"),
        ((file("a", form="ORC"),), "files of another partitioning or format"),
        ((file("a"), file("b", content="EQUALITY_DELETES")), "EQUALITY_DELETES in PARQUET"),
        ((file("a"), file("b", content="POSITION_DELETES", form="PUFFIN")), "in PUFFIN"),
    ],
)
def test_what_others_wrote_in_another_form_stops_the_job(found: tuple[Any, ...], said: str) -> None:
    with pytest.raises(JobError, match=said):
        live(*found)


def test_a_column_that_others_have_renamed_stops_the_job() -> None:
    with pytest.raises(JobError, match="no column key any more"):
        live(file("a"), columns=("k", "partition", "timestamp"))
