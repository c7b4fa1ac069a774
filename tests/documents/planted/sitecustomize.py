"""Python imports this as it starts, in every process whose PYTHONPATH names this folder: it plants
the bug that KSTORE_PLANTED_BUG names. test_planted_bugs.py of the folder above makes use of it.
"""

from __future__ import annotations

import os

from tests.documents.planted_bugs import BUGS

BUGS[os.environ["KSTORE_PLANTED_BUG"]].plant(setattr)
