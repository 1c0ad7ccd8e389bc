"""What the README and the guide promise: length, links, a script for every claim, whole references."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.binding import Binding

from kernbench.machine import markdown_text
from kernbench.tui.bindings import KEYS
from tests import ROOT
from tests.guide.blocks import GUIDE, PAGES

README = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST_README = 120
SCRIPTS = ("tests/measure/", "src/kernbench/selfcheck/")
PRIVATE = {"torch_internals", "arguments"}


def page(topic: str) -> str:
    return " ".join((GUIDE / f"{topic}.md").read_text(encoding="utf-8").split())


def section(text: str, name: str) -> str:
    return re.split(r"\n## ", text.partition(f"## {name}\n")[2])[0]


def table(text: str) -> list[str]:
    """The rows of a table, without its head."""
    return [line for line in text.splitlines() if line.startswith("| ")][2:]


def test_the_readme_is_short_and_has_its_parts() -> None:
    assert len(README.splitlines()) <= LONGEST_README
    wanted = {
        "Two commands",
        "Install into a GPU environment",
        "The loop",
        "Keys",
        "A task in twenty lines",
        "Measured",
    }
    assert set(re.findall(r"^## (.*)$", README, re.MULTILINE)) >= wanted
    assert len(re.findall(r"^\d+\. ", section(README, "The loop"), re.MULTILINE)) == 10
    assert len(re.findall(r"\*\*\w+\*\*:", section(README, "Eight words"))) == 8


@pytest.mark.parametrize("text", [README, (GUIDE / "numbers.md").read_text()], ids=["README", "numbers"])
def test_every_measured_claim_names_its_script(text: str) -> None:
    claims = table(section(text, "Measured"))
    assert len(claims) >= 5
    for claim in claims:
        named = [path for path in re.findall(r"[\w/]+\.py", claim) if path.startswith(SCRIPTS)]
        assert named, claim
        assert [path for path in named if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_link_and_named_script_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"(?ms)^```.*?^```$|`[^`]*`", "", text)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", prose) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []
    scripts = re.findall(r"`((?:tests|kernels|src|harness)/[\w/]+\.(?:py|md))`", text)
    assert [name for name in scripts if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", sorted(GUIDE.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_fits_the_terminal_and_loses_nothing(path: Path) -> None:
    """Except the names of the columns of a table that is too wide."""
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"<!--.*?-->|```\w*|(?m:^\|.*\|\n\|[ :|-]+\|$)", " ", text)
    for width in (40, 80, 100):
        lines = markdown_text.lines(text, width)
        assert not any("<!--" in line.text or line.text.startswith("#") for line in lines if line.kind != "code")
        too_long = [line.text.strip() for line in lines if len(line.text) > width and line.kind != "code"]
        assert [text for text in too_long if " " in text] == []  # only a word that cannot be broken
        shown = set(re.findall(r"\w+", " ".join(line.text for line in lines)))
        assert set(re.findall(r"\w+", prose)) - shown == set()


def test_markdown_becomes_lines() -> None:
    text = "# Top\nsome **bold** text that is long\n\n- one\n  two\n- three\n\n```sh\n# a\n\nb\n```\n"
    text += "| a | b |\n| --- | --- |\n| x | y |\n"
    assert [tuple(line) for line in markdown_text.lines(text, 30)] == [
        ("Top", "title"),
        ("", "text"),
        ("some bold text that is long", "text"),
        ("", "text"),
        ("- one two", "text"),
        ("- three", "text"),
        ("", "text"),
        ("    # a", "code"),
        ("", "code"),
        ("    b", "code"),
        ("", "text"),
        ("a  b", "columns"),
        ("x  y", "text"),
    ]


def test_keys_has_every_global_key() -> None:
    text = page("keys")
    shown = [binding.key_display or binding.key for binding in KEYS if isinstance(binding, Binding) and binding.id]
    named = {*re.findall(r"`(\S+?)`", text), "space", *"12345"}
    assert len(shown) > 20
    assert [key for key in shown if key not in named] == []


def sources(topic: str) -> list[Path]:
    return [ROOT / "harness" / "host.py"] if topic == "host" else sorted((ROOT / "harness" / "cuda").glob("*.py"))


def raised(path: Path) -> Iterator[str]:
    """The longest fixed part of every error's message."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Error"):
            message = node.args[0] if node.args else None
            parts = message.values if isinstance(message, ast.JoinedStr) else [message]
            texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            if texts:
                yield max(texts, key=len).strip()


@pytest.mark.parametrize("topic", ["cuda", "host"])
def test_a_reference_has_every_error(topic: str) -> None:
    messages = [message for path in sources(topic) for message in raised(path)]
    assert len(messages) >= 6
    assert [message for message in messages if message not in page(topic)] == []


@pytest.mark.parametrize("topic", ["cuda", "host"])
def test_a_reference_has_every_public_name_and_argument(topic: str) -> None:
    names: set[str] = set()
    for path in sources(topic):
        if path.stem in PRIVATE:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names |= set(ast.literal_eval(node.value))
            for function in ast.walk(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
                if isinstance(function, ast.FunctionDef) and function.name in ("load", "prepared", "outputs_like"):
                    names |= {function.name, *(arg.arg for arg in function.args.args)} - {"self"}
    assert names >= {"load", "name"}
    assert {name for name in names if not re.search(rf"\b{name}\b", page(topic))} == set()
