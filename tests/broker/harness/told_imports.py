"""`kstore serve` that writes each module that the loop's thread begins to load into the file in its
first argument, and the modules of other threads into the same name with `.beside` appended.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOP = threading.get_ident()


class Teller:
    """Finds no module, and records which ones are requested."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file, self._beside = os.open(path, flags), os.open(f"{path}.beside", flags)

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        on_loop = threading.get_ident() == LOOP
        os.write(self._file if on_loop else self._beside, f"{name}\n".encode())


if __name__ == "__main__":
    sys.meta_path.insert(0, Teller(sys.argv.pop(1)))  # type: ignore[arg-type]
    from kstore.__main__ import main

    sys.exit(main())
