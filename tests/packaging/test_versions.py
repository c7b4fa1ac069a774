"""Where the version of a build comes from: git's tags, an sdist's PKG-INFO, or the changelog. And
which commits can be released.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops.release_check import problems

ROOT = Path(__file__).parents[2]
NOBODY = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
RELEASED = "# Changes\n\n## 0.2.0 (2027-01-02)\n"
CHANGED = "# Changes\n\n## Unreleased\n\n## 0.2.0 (2027-01-02)\n"


def git(tree: Path, *words: str) -> None:
    name = (
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@example.com",
        "-c",
        "protocol.file.allow=always",
    )
    subprocess.run(
        ["git", *name, *words], cwd=tree, env=os.environ | NOBODY, capture_output=True, check=True
    )


def commit(tree: Path, changes: str, *tag: str) -> None:
    (tree / "CHANGELOG.md").write_text(changes)
    git(tree, "add", ".")
    git(tree, "commit", "-q", "--allow-empty", "-m", "x")
    for name in tag:
        git(tree, "tag", "-a", name, "-m", name)


def version_of(tree: Path, missing: str = "", **environment: str) -> str:
    """The version that setup.py gives a build of this tree, without the module ``missing``."""
    program = (
        "import setuptools, sys; sys.argv = ['setup.py', 'egg_info'];"
        f"sys.modules.update(dict.fromkeys({missing.split()!r}));"
        "setuptools.setup = lambda version, **rest: print(version);"
        "import runpy; runpy.run_path('setup.py')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tree, env=os.environ | NOBODY | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What setup.py reads, with version 0.2.0 released and tagged, as a git repository."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, tree)
    git(tree, "init", "-q", "-b", "main")
    commit(tree, RELEASED, "v0.2.0")
    return tree


@pytest.mark.slow
def test_a_tagged_commit_is_that_release(tree: Path) -> None:
    assert version_of(tree) == "0.2.0"
    assert problems(tree) == []


@pytest.mark.slow
def test_a_commit_behind_a_tag_is_the_next_release_in_development(
    tree: Path, tmp_path: Path
) -> None:
    commit(tree, CHANGED)
    assert version_of(tree) == "0.2.1.dev1"
    not_ours = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    assert version_of(tree, **not_ours) == "0.2.1.dev1"
    git(tree, "worktree", "add", "-q", "-b", "other", str(tmp_path / "worktree"))
    assert version_of(tmp_path / "worktree") == "0.2.1.dev1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes", "version"),
    [
        ("shallow clone", CHANGED, "0.2.1.dev0"),
        ("no git", RELEASED, "0.2.0"),
        ("no setuptools-scm", CHANGED, "0.2.1.dev0"),
    ],
)
def test_without_a_tag_the_changelog_has_the_version(
    kind: str, changes: str, version: str, tree: Path, tmp_path: Path
) -> None:
    commit(tree, changes)
    missing = ""
    if kind == "shallow clone":
        git(tree, "clone", "-q", "--depth", "1", "--no-tags", f"file://{tree}", str(tmp_path / "x"))
        tree = tmp_path / "x"
    elif kind == "no git":
        shutil.rmtree(tree / ".git")
    else:
        missing = "setuptools_scm"
    assert version_of(tree, missing) == version


@pytest.mark.slow
def test_an_sdist_has_its_version(tree: Path) -> None:
    commit(tree, CHANGED)
    shutil.rmtree(tree / ".git")
    # As setuptools writes it into an sdist.
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: kstore\nVersion: 0.2.1.dev7\n")
    assert version_of(tree) == "0.2.1.dev7"


def test_a_release_needs_a_tag_and_the_same_version_in_the_changelog(tree: Path) -> None:
    commit(tree, RELEASED.replace("0.2.0", "0.3.0"), "v0.3.1")
    assert problems(tree) == ["this commit has no tag v0.3.0: git tag -s v0.3.0"]
    commit(tree, CHANGED, "v0.3.2")
    assert problems(tree) == [
        "CHANGELOG.md begins with '## Unreleased', not with a version and a date"
    ]
