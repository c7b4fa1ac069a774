"""The version of this kstore: a module of its own, because the package's face imports rooms that
ask for it.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
