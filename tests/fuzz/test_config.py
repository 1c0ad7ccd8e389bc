"""Whatever is in config.toml: settings, or one sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from kernbench import settings
from kernbench.tui.pages import user_keys
from tests.fuzz.user_files import fuzzed, nearly, only_sentences, spoiled, toml, write

GOOD = 'theme = "ansi-dark"\nbell = 10\n[keys]\nrerun = "f5,ctrl+r"\n'
SETTINGS = {"theme": "ansi-dark", "bell": 10, "keys": {"rerun": "f5,ctrl+r", "help": "f1"}}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "config.toml"


def check(path: Path, text: str) -> settings.Settings | None:
    write(path, text)
    with only_sentences():
        found = settings.load(path)
        assert math.isfinite(found.bell)
        user_keys.check(found, {"ansi-dark", "kernbench"})
        return found
    return None


@fuzzed(80)
@given(data=nearly(SETTINGS))
def test_data_in_config_toml(path: Path, data: Any) -> None:
    check(path, toml(data if isinstance(data, dict) else {"theme": data}))


@fuzzed(50)
@given(text=spoiled(GOOD))
def test_text_in_config_toml(path: Path, text: str) -> None:
    check(path, text)


def test_right_settings_are_read(path: Path) -> None:
    found = check(path, GOOD)
    assert found is not None
    assert (found.theme, found.bell, found.keys) == ("ansi-dark", 10.0, {"rerun": "f5,ctrl+r"})
