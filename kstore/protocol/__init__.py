"""The Kafka protocol: messages as typed classes, a module per API family, and a registry.

Only the error type is imported here, so that importing one family costs only that family.

May import: kstore._fast.protocol, kstore.errors.
"""

from __future__ import annotations

from kstore.errors import ProtocolError

__all__ = ["ProtocolError"]
