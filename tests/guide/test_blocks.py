"""Every code block of the README and the guide runs. A block that needs more than this machine has says so."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from kernbench.cli import cli
from tests import FAKE, ROOT
from tests.guide.blocks import LANGUAGES, NEEDS, PAGES, Block, Reader, blocks

FOUND = [block for page in PAGES for block in blocks(page)]
WITH_BLOCKS = list(dict.fromkeys(block.page for block in FOUND if not block.needs))
ON_A_GPU = list(dict.fromkeys(block.page for block in FOUND if block.needs == "gpu"))
ELSEWHERE = [block for block in FOUND if block.needs not in ("", "gpu")]
INDENTED = re.compile(r"(?:\A|\n)\n {4}\S")
COMMAND = re.compile(r"`kernbench ([^`]*)`")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a copy of a shipped task, and a home."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "kernels" / "softmax_host", folder / "softmax_host", ignore=shutil.ignore_patterns(".*"))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-C", str(folder)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(folder)
    return folder


def play(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, also: str = "") -> None:
    """A page that writes a task of its own runs it for real; the others' commands get workers without torch."""
    chosen = [block for block in blocks(page) if block.needs in ("", also)]
    is_real = bool(also) or any((block.file or "").endswith("solution.py") for block in chosen)
    if not is_real:
        monkeypatch.setenv("KERNBENCH_HARNESS", str(FAKE))
    reader = Reader(folder, is_real)
    for block in chosen:
        reader.play(block)


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(page, place, monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("page", ON_A_GPU, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_on_a_gpu(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(page, place, monkeypatch, also="gpu")


@pytest.mark.parametrize("block", ELSEWHERE, ids=str)
def test_a_block_for_elsewhere_says_what_it_needs(block: Block) -> None:
    for command in block.commands if block.language == "sh" else ():
        for said in re.findall(r"\bkernbench (.*)", command):
            assert_options_exist(said, str(block))
    pytest.skip(NEEDS[block.needs])


def test_every_block_has_a_language_that_is_tested() -> None:
    assert [f"{block}: {block.language or 'no language'}" for block in FOUND if block.language not in LANGUAGES] == []
    assert [f"{block}: {block.needs}" for block in FOUND if block.needs not in ("", *NEEDS)] == []
    assert [page.name for page in PAGES if INDENTED.search(page.read_text())] == []
    assert len(FOUND) > 40


def assert_options_exist(said: str, where: str) -> None:
    """Of a command as a sentence or a block has it."""
    words = said.split()
    context = click.Context(cli)
    command = (cli.get_command(context, words[0]) if words else None) or cli.get_command(context, "open")
    assert command is not None
    known = {option for param in command.params for option in (*param.opts, "--help")}
    known |= {"--version"} if not words or words[0].startswith("--") else set()
    unknown = [word for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", said) if word not in known]
    assert not unknown, f"{where}: `kernbench {said}` has no {', '.join(unknown)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_in_a_sentence_exists(page: Path) -> None:
    text = " ".join(re.sub(r"(?ms)^```.*?^```$", "", page.read_text()).split())
    for said in COMMAND.findall(text):
        assert_options_exist(said, page.name)


def test_a_wrong_option_in_a_sentence_is_seen() -> None:
    with pytest.raises(AssertionError, match="has no --formatt"):
        assert_options_exist("export TASK --formatt md", "page")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\nkernbench run nosuch\n```\n", "no task 'nosuch'"),
        ("```sh\nkernbench log softmax_host | grep nosuch\n```\n", "grep nosuch"),
        ("```python\nraise ValueError('from the page')\n```\n", "from the page"),
        ('```toml\n# ~/.config/kernbench/config.toml\nbell = "loud"\n```\n', "bell is 'loud'"),
        ("```toml\nentry = 1\n```\n", "which file is it"),
    ],
)
def test_a_block_that_does_not_work_fails(
    text: str, said: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(Exception, match=re.escape(said)):
        play(page, place, monkeypatch)
