"""Security rules that a test can check: no unpickling or evaluation, no shell, and no secret in any
file of the repository.

What Spark itself pickles, to send tasks to its workers, is not checked.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.sources import PRODUCT, ROOT, calls, code, files, relative, report, text
from tests.sources import trees as trees  # a fixture

RUNS_WHAT_IT_READS = frozenset({
    "pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal",
    "shelve",
})  # fmt: skip
"""Modules that create objects from bytes, and so run code."""
EVALUATES = frozenset({"eval", "exec", "compile", "__import__"})
TEXT_FILES = ("Makefile", ".ci/run", ".ci/prepare", ".ci/folder", ".gitignore", "MANIFEST.in")

SECRETS = {
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{64}"),
    "a key of AWS": re.compile(r"A(?:KIA|SIA)[0-9A-Z]{16}\b"),
    "a token of GitHub": re.compile(r"g(?:h[pousr]_[A-Za-z0-9]{36,}|ithub_pat_\w{22,})"),
    "a token of GitLab": re.compile(r"glpat-[\w-]{20,}"),
    "a token of Slack": re.compile(r"xox[abposr]-[\w-]{10,}"),
    "a key of Google": re.compile(r"AIza[\w-]{35}\b"),
    "a token of PyPI": re.compile(r"pypi-[\w-]{50,}"),
    "a token of npm": re.compile(r"npm_[A-Za-z0-9]{36}\b"),
    "a signed JWT": re.compile(r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}"),
    "a password in a URL": re.compile(r"://[^\s/:@{}$<]+:[^\s/:@{}$<]{3,}@"),
}
"""Each begins with letters, not with \\b: that search is ten times as fast."""
NAMED = re.compile(
    r"""(?ix)(?:password|passwd|secret|token|api_?key|private_?key)\w*["']?\s*[:=]\s*
    ["']([\w+/=.-]{16,})["']"""
)
"""A name of a secret, and a long value in quotes. It counts as a secret if the value looks random.
"""
QUOTED = re.compile(r"""[:=]\s*["'][\w+/=.-]{16,}["']""")
"""The end of each match of NAMED: to look for it first is ten times as fast."""
NAME_CHARS = 200
"""The longest name."""
JAVA_CLASS = re.compile(r"(?:[a-z]+\.)+[A-Z][A-Za-z]+")
RANDOM_BITS = 4.0
"""A value looks random from this many bits per character on. Words have fewer."""


def test_nothing_is_pickled() -> None:
    words = "|".join(RUNS_WHAT_IT_READS)
    imported = re.compile(rf"^[ \t]*(?:from|c?import)[ \t]+((?:{words})\b.*)", re.MULTILINE)
    report(
        [
            f"{relative(path)} imports {match[1]}: it runs what it reads"
            for path in code(".py", ".pyi", ".pyx", ".pxd")
            for match in imported.finditer(text(path))
        ]
    )


OWN_EXPRESSIONS = {
    "kstore/net/principals.py": "rules that the operator wrote (ssl.principal.mapping.rules)",
    "kstore/config/definition.py": "the tables of settings",
}
"""Files with an expression that is not written in the call, and its origin."""


def test_no_backtracking_engine_meets_an_expression_from_a_client() -> None:
    def written(node: ast.expr) -> bool:
        return all(
            isinstance(part, ast.Constant | ast.BinOp | ast.operator)
            or (isinstance(part, ast.Name) and part.id.isupper())
            or isinstance(part, ast.expr_context)
            for part in ast.walk(node)
        )

    places = {
        relative(path): f"{relative(path)}:{node.lineno} gives re what is not written there"
        for path in code(".py", under=("broker/", "kstore/"))
        if not relative(path).startswith(("kstore/cli/", "kstore/testing/"))
        if "re." in text(path)
        for node in calls(path)
        if isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and ast.unparse(node.func).startswith("re.")
        and not written(node.args[0])
    }
    report([problem for path, problem in places.items() if path not in OWN_EXPRESSIONS])
    assert OWN_EXPRESSIONS.keys() == places.keys()


def test_what_came_over_the_wire_is_never_evaluated_and_no_shell_is_started() -> None:
    problems = []
    words = re.compile(
        r"(?<![.\w])(?:eval|exec|compile|__import__)\b|\b(?:os\s*\.\s*(?:system|popen)|getoutput"
        r"|yaml\s*\.\s*load|shell|allow_pickle)\b"
    )
    for path in code(".py", under=PRODUCT):
        for node in calls(path) if words.search(text(path)) else ():
            where = f"{relative(path)}:{node.lineno}"
            if isinstance(node.func, ast.Name) and node.func.id in EVALUATES:
                problems.append(f"{where} calls {node.func.id}")
            called = ast.unparse(node.func) if isinstance(node.func, ast.Attribute) else ""
            if called in {"os.system", "os.popen", "subprocess.getoutput", "yaml.load"}:
                problems.append(f"{where} calls {called}")
            problems += [
                f"{where} passes {word.arg}"
                for word in node.keywords
                if word.arg in {"shell", "allow_pickle"}
                and not (isinstance(word.value, ast.Constant) and word.value.value is False)
            ]
    report(problems)


def test_no_file_holds_a_secret() -> None:
    paths = [*files(), *(ROOT / name for name in TEXT_FILES if (ROOT / name).exists())]
    report(
        [
            f"{relative(path)}:{line} holds {what}"
            for path in paths
            for what, line in found_secrets(text(path))
        ]
    )


def found_secrets(content: str) -> Iterator[tuple[str, int]]:
    """Possible secrets in a text, with their lines."""
    for what, pattern in SECRETS.items():
        for match in pattern.finditer(content):
            yield what, content.count("\n", 0, match.start()) + 1
    for quoted in QUOTED.finditer(content):
        match = NAMED.search(content, max(0, quoted.start() - NAME_CHARS), quoted.end())
        if match is None:
            continue
        if bits_per_character(match[1]) >= RANDOM_BITS and not JAVA_CLASS.fullmatch(match[1]):
            yield "a value that looks like a secret", content.count("\n", 0, match.start()) + 1


def bits_per_character(value: str) -> float:
    """The entropy of a text by its own characters."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        (("AKIA", "IOSFODNN7EXAMPLE"), "a key of AWS"),
        (("gh", "p_", "a1B2" * 9), "a token of GitHub"),
        (("-----BEGIN RSA PRIV", "ATE KEY-----\n", "MIIEpAIBAAKCAQEA" * 5), "a private key"),
        (("https://me:", "hunter2", "@example.org"), "a password in a URL"),
        (("api_key = '", "q8Zr2LwX0vB7nT4yK1", "'"), "a value that looks like a secret"),
    ],
)
def test_the_scan_finds_what_was_planted(parts: tuple[str, ...], what: str) -> None:
    assert [found for found, _ in found_secrets("x\n" + "".join(parts))] == [what]


def test_the_scan_leaves_words_alone() -> None:
    assert not list(found_secrets('password = "password-of-the-probe"\ntoken = "${TOKEN}"'))
