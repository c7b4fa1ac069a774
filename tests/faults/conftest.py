"""The disks with faults, for all tests of this folder."""

from tests.faults.disks import disk, faulty_disk, frozen_disk, hanging_device

__all__ = ["disk", "faulty_disk", "frozen_disk", "hanging_device"]
