"""Settings of all tests: property tests have no deadline, for a busy machine is not a failure; and
every broker checks after each step what must hold of groups.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("kstore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kstore")

os.environ["KSTORE_CHECK_INVARIANTS"] = "true"  # for brokers in processes of their own, too
