"""The ``kstore`` command. It chooses which module to import, so that ``kstore serve`` starts
without the other commands and without the command line library.

``kstore serve`` is in kstore/cli/serve.py, everything else in kstore/cli/app.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 failed, 2 wrong usage, 130
    interrupted.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # while modules were imported; later, the command handles it
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        from kstore.cli.serve import plain_arguments, serve

        given = plain_arguments(arguments[1:])
        if given is not None and "_KSTORE_COMPLETE" not in os.environ:
            return serve(given)
    from kstore.cli.app import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
