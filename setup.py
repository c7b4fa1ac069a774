"""Builds the Cython modules of kstore/_fast, and gives the version and the page of a package index.
Everything else is declared in pyproject.toml.

A wheel has all modules in one shared library, in which kstore/_fast finds them; a build in place
has a file for each. KSTORE_LTO=1 optimizes that library as a whole, for a release. KSTORE_DEBUG=1
builds with bounds checks, assertions and line tracing; KSTORE_ASAN=1 with AddressSanitizer;
KSTORE_MODULES=batch,crc32c restricts a developer's rebuild to those modules.
KSTORE_PROJECT_URL is the repository's address, for the links of a release.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DEBUG = os.environ.get("KSTORE_DEBUG", "") == "1"
ASAN = os.environ.get("KSTORE_ASAN", "") == "1"
LTO = ["-flto=auto"] if os.environ.get("KSTORE_LTO", "") == "1" else []
ONLY = [name for name in os.environ.get("KSTORE_MODULES", "").split(",") if name]
JOBS = min(4, os.cpu_count() or 1)
FAST = Path("kstore/_fast")
LOOPS = {
    "arrow_stream", "batch", "batch_view", "builder", "columns", "fetched", "nested", "records",
    "unpack",
}  # fmt: skip
"""Modules of the rooms record and clients with loops over records, which -O3 makes up to a tenth
faster; the others only grow by it."""
UNALIGNED = [f"-fno-align-{what}" for what in ("functions", "jumps", "loops")]
"""Makes code that mostly calls functions 6 % smaller. clang does not have all of them."""
WAITS = {
    "disk", "queue", "replication", "shared", "shares",
    "compression", "dir_calm", "loop_guard", "recompress", "stolen_time", "sync_group",
}  # fmt: skip
"""Rooms and modules whose time goes into system calls, locks and other libraries."""
# Commands that only look at the sources: they need no C code, and no Cython either.
COLLECTING = {"sdist", "egg_info", "dist_info", "clean"} & set(sys.argv)


def _optimization(source: Path) -> list[str]:
    """How the compiler optimizes what a .pyx becomes."""
    if DEBUG or ASAN:
        return ["-O0"] if DEBUG else ["-O1"]
    if WAITS & {source.parent.name, source.stem}:
        return ["-Os"]
    if source.stem in LOOPS and source.parent.name in {"record", "clients"}:
        return ["-O3"]
    return ["-O2"] if sys.platform == "darwin" else ["-O2", *UNALIGNED]


def _is_newer(this: Path) -> bool:
    """Whether a .c was made by an older version of this file, with other directives."""
    made = this.stat().st_mtime
    return any(source.stat().st_mtime < made for source in FAST.rglob("*.c"))


def extensions() -> list[Extension]:
    """Return one extension per .pyx, translated to C."""
    from Cython.Build import cythonize

    compile_args = ["-Wno-unused-function", "-Wno-unreachable-code", "-fvisibility=hidden"]
    # A broker maps some fifty of these files. The tables that are left out are a debugger's.
    compile_args += ["-g"] if DEBUG or ASAN else ["-g0", "-fno-asynchronous-unwind-tables"]
    sanitizer = ["-fsanitize=address", "-fno-omit-frame-pointer"] if ASAN else []
    modules = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            depends=[str(header) for header in sorted(FAST.rglob("*.h"))],
            define_macros=[("CYTHON_TRACE_NOGIL", "1")] if DEBUG else [],
            extra_compile_args=[*compile_args, *_optimization(source), *LTO, *sanitizer],
            extra_link_args=[*LTO, *sanitizer],
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
            "embedsignature.format": "clinic",
            # Functions as C has them, and no code to pickle with: 2 MB less in a broker.
            "binding": False,
            "auto_pickle": False,
        },
        force=DEBUG or ASAN or _is_newer(Path(__file__)),
        nthreads=JOBS,
        quiet=True,
    )
    return translated


class OneLibrary(build_ext):
    """Compiles each module by its own options, and links all of them into one library."""

    def build_extensions(self) -> None:
        self._objects: list[str] = []
        super().build_extensions()
        (library,) = self.get_outputs()
        self.compiler.link_shared_object(sorted(self._objects), library, extra_postargs=LTO)

    def build_extension(self, ext: Extension) -> None:
        self._objects += self.compiler.compile(
            ext.sources,
            output_dir=self.build_temp,
            macros=ext.define_macros,
            extra_postargs=ext.extra_compile_args,
            depends=ext.depends,
        )

    def get_outputs(self) -> list[str]:
        return [self.get_ext_fullpath("kstore._fast.modules")]


def _changelog_version() -> str:
    """The version by CHANGELOG.md: the newest release, or what follows it if there are changes."""
    headings: list[str] = re.findall(r"^## (\S+)", Path("CHANGELOG.md").read_text("utf-8"), re.M)
    release = next(heading for heading in headings if heading[0].isdigit())
    if headings[0] == release:
        return release
    start, _, last = release.rpartition(".")
    return f"{start}.{int(last) + 1}.dev0"


def _version() -> str:
    """The version by git's tags; an sdist has it in PKG-INFO. Where there is neither, as in a clone
    without tags or an archive, or no setuptools-scm, it is the changelog's.
    """
    try:
        from setuptools_scm import get_version
        from setuptools_scm.version import guess_next_dev_version
    except ImportError:
        return _changelog_version()

    def scheme(found: Any) -> str:
        tagged = str(found.tag) != "0.0"  # what setuptools-scm takes where there is no tag
        return guess_next_dev_version(found) if tagged else _changelog_version()

    try:
        return get_version(version_scheme=scheme, local_scheme="no-local-version")
    except LookupError:
        return _changelog_version()


def _page(version: str) -> dict[str, Any]:
    """The description and the links for a package index. With KSTORE_PROJECT_URL, the address of
    the repository, relative links of the README become absolute ones, to the tag of a release.
    """
    text = Path("README.md").read_text("utf-8")
    page: dict[str, Any] = {"long_description_content_type": "text/markdown"}
    if url := os.environ.get("KSTORE_PROJECT_URL", "").rstrip("/"):
        tag = "HEAD" if "dev" in version else f"v{version}"
        text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{url}/raw/{tag}/", text)
        text = re.sub(r"((?<!!)\[[^][]*\]\()(?!https?:|#)", rf"\1{url}/blob/{tag}/", text)
        page["project_urls"] = {
            "Source": url,
            "Documentation": f"{url}/blob/{tag}/docs/index.md",
            "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{url}/issues",
        }
    return page | {"long_description": text}


VERSION = _version()

setup(
    version=VERSION,
    **_page(VERSION),
    ext_modules=[] if COLLECTING else extensions(),
    cmdclass={"build_ext": OneLibrary} if "bdist_wheel" in sys.argv else {},
    options={"build_ext": {"parallel": JOBS}},
)
