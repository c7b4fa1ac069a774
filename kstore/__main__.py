"""The ``kstore`` command. It only chooses what to import: ``kstore serve`` must not pay for the
other commands.

The commands are in kstore/cli; the broker's start is kstore/cli/serve.py, everything else
kstore/cli/app.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 failed, 2 wrong usage, 130
    interrupted.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["serve"]:
        from kstore.cli.serve import serve

        return serve(arguments[1:])
    from kstore.cli.app import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
