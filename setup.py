"""Builds the Cython modules of kstore/_fast; everything else is declared in pyproject.toml.

KSTORE_DEBUG=1 builds with bounds checks, assertions and line tracing; KSTORE_ASAN=1 with
AddressSanitizer; KSTORE_MODULES=batch,crc32c restricts a developer's rebuild to those modules.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

DEBUG = os.environ.get("KSTORE_DEBUG", "") == "1"
ASAN = os.environ.get("KSTORE_ASAN", "") == "1"
ONLY = [name for name in os.environ.get("KSTORE_MODULES", "").split(",") if name]
JOBS = min(4, os.cpu_count() or 1)
FAST = Path("kstore/_fast")
# Commands that only look at the sources: they need no C code, and no Cython either.
COLLECTING = {"sdist", "egg_info", "dist_info", "clean"} & set(sys.argv)


def extensions() -> list[Extension]:
    """Return one extension per .pyx, translated to C."""
    from Cython.Build import cythonize

    compile_args = ["-O0", "-g"] if DEBUG else ["-O1", "-g"] if ASAN else ["-O3", "-g0"]
    compile_args += ["-Wno-unused-function", "-Wno-unreachable-code"]
    sanitizer = ["-fsanitize=address", "-fno-omit-frame-pointer"] if ASAN else []
    modules = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            depends=[str(header) for header in sorted(FAST.rglob("*.h"))],
            define_macros=[("CYTHON_TRACE_NOGIL", "1")] if DEBUG else [],
            extra_compile_args=compile_args + sanitizer,
            extra_link_args=sanitizer,
        )
        for source in sorted(FAST.rglob("*.pyx"))
        if not ONLY or source.stem in ONLY
    ]
    translated: list[Extension] = cythonize(
        modules,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG or ASAN,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": DEBUG or ASAN,
            "linetrace": DEBUG,
            "embedsignature": True,
        },
        force=DEBUG or ASAN,
        nthreads=JOBS,
        quiet=True,
    )
    return translated


setup(
    ext_modules=[] if COLLECTING else extensions(),
    options={"build_ext": {"parallel": JOBS}},
)
