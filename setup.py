"""Builds the Cython modules of kstore/_fast; everything else is declared in pyproject.toml.

KSTORE_DEBUG=1 builds with bounds checks, assertions and line tracing; KSTORE_ASAN=1 with AddressSanitizer;
KSTORE_MODULES=batch,crc32c restricts a developer's rebuild to those modules.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("KSTORE_DEBUG", "") == "1"
ASAN = os.environ.get("KSTORE_ASAN", "") == "1"
ONLY = [name for name in os.environ.get("KSTORE_MODULES", "").split(",") if name]

compile_args = ["-O0", "-g"] if DEBUG else ["-O3", "-g0"]
compile_args += ["-Wno-unused-function", "-Wno-unreachable-code"]
link_args: list[str] = []
macros: list[tuple[str, str | None]] = []
if DEBUG:
    macros.append(("CYTHON_TRACE_NOGIL", "1"))
if ASAN:
    sanitizer = ["-fsanitize=address", "-fno-omit-frame-pointer", "-g"]
    compile_args += sanitizer
    link_args += sanitizer

extensions = [
    Extension(
        f"kstore._fast.{source.stem}",
        [str(source)],
        define_macros=macros,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for source in sorted(Path("kstore/_fast").glob("*.pyx"))
    if not ONLY or source.stem in ONLY
]

setup(
    ext_modules=cythonize(
        extensions,
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
        nthreads=min(4, os.cpu_count() or 1),
        quiet=True,
    )
)
