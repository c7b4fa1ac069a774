"""How the modules of a wheel are found in its one shared library."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from kstore._fast import _OneLibrary
from kstore._fast.record import crc32c

FAST = Path(__file__).parents[2] / "kstore" / "_fast"
LIBRARY = str(crc32c.__file__)  # one with a single module


def test_a_module_is_loaded_from_the_library() -> None:
    spec = _OneLibrary(LIBRARY).find_spec("kstore._fast.record.crc32c", None)
    assert spec is not None
    assert (spec.origin, type(spec.loader)) == (LIBRARY, ExtensionFileLoader)
    assert importlib.util.module_from_spec(spec).__name__ == "kstore._fast.record.crc32c"


def test_a_module_that_the_library_lacks_is_an_import_error() -> None:
    spec = _OneLibrary(LIBRARY).find_spec("kstore._fast.record.nothing", None)
    assert spec is not None
    with pytest.raises(ImportError, match="PyInit_nothing") as failed:
        importlib.util.module_from_spec(spec)
    assert failed.value.name == "kstore._fast.record.nothing"


@pytest.mark.parametrize(
    "name", ["json", "kstore.log", "kstore._fast", "kstore._fast.record", "kstore._faster.a.b"]
)
def test_other_modules_are_left_to_python(name: str) -> None:
    assert _OneLibrary(LIBRARY).find_spec(name, None) is None


def test_the_last_part_of_a_name_is_unique() -> None:
    counts = Counter(path.stem for path in FAST.rglob("*.pyx"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_a_build_in_place_needs_no_finder() -> None:
    assert not [finder for finder in sys.meta_path if isinstance(finder, _OneLibrary)]
