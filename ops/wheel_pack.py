"""Compresses wheels again, in place, with zopfli: 3 % smaller in the same deflate format, in a
minute. The files in a wheel do not change, including its RECORD; auditwheel's entries for folders,
which no installer needs, are removed. `make wheel` and cibuildwheel run it after auditwheel or
delocate.
"""

from __future__ import annotations

import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from zopfli.zlib import compress

DEFLATED = 8
UTF8_NAMES = 0x800
MADE_ON_UNIX = 3 << 8 | 20


def _fields(info: ZipInfo, size_bytes: int) -> tuple[int, ...]:
    """What a file's header and its entry in the directory have in common."""
    year, month, day, hour, minute, second = info.date_time
    date, time = (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
    name = len(info.filename.encode())
    return 20, UTF8_NAMES, DEFLATED, time, date, info.CRC, size_bytes, info.file_size, name, 0


def pack(wheel: Path) -> None:
    """Replace the wheel by a smaller one with the same files."""
    with ZipFile(wheel) as old:
        infos = [info for info in old.infolist() if not info.is_dir()]
        contents = [old.read(info) for info in infos]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # zopfli does not hold the GIL
        # Deflated bytes without zlib's header and checksum, which a zip has not.
        packed = [
            each[2:-4] for each in pool.map(lambda c: compress(c, numiterations=15), contents)
        ]
    files, directory = bytearray(), bytearray()
    for info, data in zip(infos, packed, strict=True):
        fields, name = _fields(info, len(data)), info.filename.encode()
        directory += struct.pack("<4sH", b"PK\1\2", MADE_ON_UNIX) + struct.pack("<5H3I2H", *fields)
        directory += struct.pack("<3H2I", 0, 0, 0, info.external_attr, len(files)) + name
        files += b"PK\3\4" + struct.pack("<5H3I2H", *fields) + name + data
    count = len(infos)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), len(files), 0)
    wheel.write_bytes(files + directory + end)
    with ZipFile(wheel) as new:
        if (broken := new.testzip()) or [new.read(info.filename) for info in infos] != contents:
            raise SystemExit(f"{wheel.name} cannot be read again: {broken}")


if __name__ == "__main__":
    for each in sorted(Path(sys.argv[1]).glob("*.whl")):
        pack(each)
