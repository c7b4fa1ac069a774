"""Settings of all tests: property tests have no deadline, for a busy machine is not a failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("kstore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kstore")
