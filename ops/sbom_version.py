"""Writes the version of the installed kstore to a CycloneDX file, because pyproject.toml has none.
`make sbom` runs it.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

if __name__ == "__main__":
    path = Path(sys.argv[1])
    document = json.loads(path.read_text("utf-8"))
    document["metadata"]["component"]["version"] = version("kstore")
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
