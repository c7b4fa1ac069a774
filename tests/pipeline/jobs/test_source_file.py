"""How a file becomes records, and the errors for a file that cannot be loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kstore.pipeline.jobs.source_file import SourceError, SourceRecord, open_source


def write(folder: Path, content: bytes, name: str = "some file.log") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_each_line_is_a_record_keyed_by_its_number(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, b"a\n\n\xff\xfe b\r\nlast"))
    assert list(source.records()) == [
        SourceRecord(b"1", b"a", 1),
        SourceRecord(b"2", b"", 2),
        SourceRecord(b"3", b"\xff\xfe b\r", 3),
        SourceRecord(b"4", b"last", 4),
    ]
    assert (source.topic, source.size_bytes) == ("some-file.log", 13)


def test_each_stanza_is_a_record_keyed_by_its_package(tmp_path: Path) -> None:
    content = b"Package: a\nVersion: 1\n\n\nVersion: 2\nPackage: b\n text\n \nSource: c\n"
    source = open_source(write(tmp_path, content, "status"))
    assert list(source.records()) == [
        SourceRecord(b"a", b"Package: a\nVersion: 1\n", 1),
        SourceRecord(b"b", b"Version: 2\nPackage: b\n text\n", 5),
        SourceRecord(b"9", b"Source: c\n", 9),
    ]


@pytest.mark.parametrize(
    ("name", "topic"),
    [("a b/ü", "-"), ("...", "file"), ("x" * 255, "x" * 249), ("ok_1.2-3", "ok_1.2-3")],
)
def test_the_topic_is_named_after_the_file(tmp_path: Path, name: str, topic: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    assert open_source(path).topic == topic


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty: there is nothing to load"),
        (b"\n \n\t", "is empty: there is nothing to load"),
        (b"abc\0def", "is not text: it has a zero byte at 3; give a text file"),
    ],
)
def test_a_file_that_holds_nothing_to_load(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(SourceError) as caught:
        open_source(path)
    assert str(caught.value) == f"{path} {sentence}"


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        open_source(tmp_path / "none")
    with pytest.raises(SourceError, match="is a folder"):
        open_source(tmp_path)


def test_a_pipe_is_refused_without_being_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="not a regular file"):
        open_source(tmp_path / "pipe")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, b"x")
    path.chmod(0)
    if os.access(path, os.R_OK):
        # The superuser may read everything, but cannot follow a cycle of links.
        path = tmp_path / "ring"
        path.symlink_to(path)
    with pytest.raises(SourceError, match="can't be read"):
        open_source(path)
