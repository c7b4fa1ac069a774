"""The examples of README.md, and those in docs/ that need a broker, run unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.broker_process import free_port, free_ports
from tests.conformance.kstore_broker import KstoreBroker

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(page: str, language: str, heading: str = "") -> str:
    """The first code block of a language on a page, or below a heading of it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if heading:
        text = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found, f"no {language} block on {page} below {heading!r}"
    return found[1]


def run_python(code: str, folder: Path) -> str:
    """Run an example in a folder and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_starts_with_the_two_commands() -> None:
    first = README[: README.index("\n## ")]
    assert re.search(r"```sh\nmake run .*\nmake test .*\n```", first)


def test_the_embedded_example(tmp_path: Path) -> None:
    assert run_python(block("README.md", "python", "An embedded log"), tmp_path).splitlines() == [
        "0 b'order-1' b'created'",
        "1 b'order-1' b'paid'",
        "2 b'order-2' b'created'",
    ]


def run_with_a_broker(code: str, folder: Path) -> list[str]:
    """Run an example that starts a broker in the background, and return the lines it printed."""
    port = free_port()
    code = code.replace("9092", str(port))
    # The example does not wait for the broker's ready line, as a user at a keyboard does.
    code = code.replace(" &\n", " > ready &\nuntil grep -q ready ready; do sleep 0.05; done\n", 1)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KSTORE_BOOTSTRAP_SERVER": f"localhost:{port}",
    }
    stop = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"  # also if an example fails
    done = subprocess.run(
        ["bash", "-ec", stop + code + "wait\n"], cwd=folder, env=environment, capture_output=True,
        text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_readmes_broker(tmp_path: Path) -> None:
    code = block("README.md", "sh", "A broker, or a cluster")
    assert run_with_a_broker(code, tmp_path) == ["created payments", "paid"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_broker_example(tmp_path: Path) -> None:
    created, consumed, *again = run_with_a_broker(block("docs/broker.md", "sh"), tmp_path)
    assert created == "created payments"
    assert re.fullmatch(r"[01] 0 order-1 paid", consumed)
    assert again == ["paid", "paid"]


def test_the_client_examples(tmp_path: Path) -> None:
    with KstoreBroker(tmp_path / "broker") as broker:
        for page in ("README.md", "docs/index.md", "docs/clients/index.md"):
            topic = f"of-{Path(page).parent.name}"
            code = block(page, "python", "" if page.startswith("docs/clients") else "Clients")
            code = code.replace("localhost:9092", broker.bootstrap).replace("payments", topic)
            assert run_python(code, tmp_path) == f"{topic} 0 0 b'paid'\n"


@pytest.mark.slow
def test_the_administration_examples(tmp_path: Path) -> None:
    profiles = tmp_path / "config" / "kstore" / "profiles.toml"
    profiles.parent.mkdir(parents=True)
    profiles.write_text(block("docs/administration.md", "toml"))
    with KstoreBroker(tmp_path / "broker") as broker:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KSTORE_BOOTSTRAP_SERVER": broker.bootstrap,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        code = block("docs/administration.md", "sh") + "kstore profile show staging\n"
        done = subprocess.run(
            ["sh", "-e", "-c", code], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert "created orders" in lines
        assert lines[-1] == "client.id=operations"
        python = block("docs/administration.md", "python").replace(
            "localhost:9092", broker.bootstrap
        )
        assert run_python(python, tmp_path) == "['payments'] TOPIC_ALREADY_EXISTS\n"


@pytest.mark.slow
def test_the_example_of_tests(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(block("docs/testing.md", "python"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "kstore.testing.plugin"], cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_cluster_example(tmp_path: Path) -> None:
    port = free_ports(3)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KSTORE_BOOTSTRAP_SERVER": f"localhost:{port}",
    }
    code = block("docs/cluster.md", "sh").replace("9092", str(port))
    try:
        done = subprocess.run(
            ["sh", "-e", "-c", code],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert "created orders" in lines
        assert lines[lines.index("killed broker 1") + 1] == "orders"
        assert sum(" pid " in line and "MB" in line for line in lines) == 3
        assert lines[-1] == "stopped 3 brokers"
    finally:
        command = [sys.executable, "-m", "kstore", "cluster", "stop", "--dir", "cluster"]
        subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
