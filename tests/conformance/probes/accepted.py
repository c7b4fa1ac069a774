"""Differences from Kafka that are meant: a pattern of the difference's line, and the reason."""

__all__ = ["ACCEPTED"]

ACCEPTED: dict[str, str] = {}
