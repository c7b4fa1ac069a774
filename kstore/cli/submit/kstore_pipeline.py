"""For spark-submit: `spark-submit ... kstore_pipeline.py archive ...` is `kstore pipeline archive
...` on the Spark that it was submitted to. `kstore pipeline script` prints where this file is.

It has a folder of its own, because Python first looks for modules in the folder of the script.
"""

from __future__ import annotations

import sys

from kstore.cli.app import run

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(run(["pipeline", *sys.argv[1:]]))
