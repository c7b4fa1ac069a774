"""docs/versions.py: the versions of the documentation site."""

from __future__ import annotations

import json
from pathlib import Path

from docs.versions import publish


def _publish(folder: Path, release: str) -> list[tuple[str, list[str]]]:
    """Publish a site with one page, and return the listed versions with their aliases."""
    built = folder / "html"
    built.mkdir()
    (built / "index.html").write_text(release, "utf-8")
    publish(built, folder / "site", release)
    listed = json.loads((folder / "site" / "versions.json").read_text("utf-8"))
    return [(each["version"], each["aliases"]) for each in listed]


def test_versions_are_listed_from_the_newest_and_the_last_release_is_the_latest(
    tmp_path: Path,
) -> None:
    assert _publish(tmp_path, "0.9.0") == [("0.9", ["latest"])]
    assert _publish(tmp_path, "0.10.0") == [("0.10", ["latest"]), ("0.9", [])]
    assert _publish(tmp_path, "0.10.1.dev37") == [("dev", []), ("0.10", ["latest"]), ("0.9", [])]
    assert "url=0.10/index.html" in (tmp_path / "site" / "index.html").read_text("utf-8")


def test_a_patch_release_replaces_the_pages_of_its_version(tmp_path: Path) -> None:
    _publish(tmp_path, "0.9.0")
    assert _publish(tmp_path, "0.9.1") == [("0.9", ["latest"])]
    assert (tmp_path / "site" / "0.9" / "index.html").read_text("utf-8") == "0.9.1"


def test_without_a_release_the_site_leads_to_the_unreleased_version(tmp_path: Path) -> None:
    assert _publish(tmp_path, "0.1.1.dev2") == [("dev", ["latest"])]
    assert "url=dev/index.html" in (tmp_path / "site" / "index.html").read_text("utf-8")
