"""One function per destination: what each lets through, and that hiding a word is impossible."""

from __future__ import annotations

import io
import json
import sys

import pytest

from kernbench.machine import plain_text, terminal
from kernbench.machine.plain_text import csv_cell, fenced, json_text, markdown, one_line, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07word", "]0;titleword"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("a\x9b5mb\x85c\x7fd\x00e", "a5mbcde"),
        ("right\u202eleft\u2066x\u2069", "rightleftx"),
        ("a\tb\nc\r\nd\re", "a\tb\nc\r\nde"),
        ("lone \ud800 and \udcff", "lone \ufffd and \ufffd"),
        ("±▲ × µs 漢字", "±▲ × µs 漢字"),
        ("\x1b]unended WRONG", "]unended WRONG"),
    ],
)
def test_a_terminal_gets_text(text: str, shown: str) -> None:
    assert plain(text) == shown
    assert plain(shown) == shown


def test_a_sentence_stays_one_line() -> None:
    assert one_line("Bad\nName: first\r\n\x0bsecond\u2028third") == "Bad Name: first secondthird"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>x</script>", "\\<script>x\\</script>"),
        ("\\<b>", "\\<b>"),
        ("\\\\<b>", "\\\\\\<b>"),
        ("<!-- hidden --> <?php", "\\<!-- hidden --> \\<?php"),
        ("![x](http://spy)", "\\![x](http://spy)"),
        ("a < b, 3 <4, x[1] ! [y]", "a < b, 3 <4, x[1] ! [y]"),
    ],
)
def test_markdown_gets_no_html_and_no_image(text: str, shown: str) -> None:
    assert markdown(text) == shown
    assert markdown(shown) == shown


def test_a_fence_outlasts_its_lines() -> None:
    assert fenced(["a", "````", "\x1bb"], "sh") == ["`````sh", "a", "````", "b", "`````"]
    assert fenced(["a"], "") == ["```", "a", "```"]


@pytest.mark.parametrize("text", ["=cmd|'/C calc'!A0", "+1+1", "-x", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_a_spreadsheet_shows_a_formula(text: str) -> None:
    assert csv_cell(text).startswith("'")


@pytest.mark.parametrize("text", ["-1.5", "+2e-3", "plain", "", "a=b"])
def test_a_spreadsheet_keeps_the_rest(text: str) -> None:
    assert csv_cell(text) == text


def test_json_stays_json() -> None:
    value = "\x1b\x9b\u202e\u2028\udcff\x7f é"
    text = json_text(json.dumps(value, ensure_ascii=False))
    assert plain(text) == text
    assert json.loads(text) == value


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_the_streams_never_fail_and_pass_our_own_codes(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    files = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, file in files.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(file, encoding, line_buffering=True))
    terminal.print_only_text()
    terminal.print_only_text()
    terminal.control(sys.stdout, "\x1b[2K\r")
    print("\x1b[5m\udcff漢\x9b")
    print("\x07said", file=sys.stderr)
    wide = "\ufffd漢" if encoding != "latin-1" else "\\ufffd\\u6f22"
    assert files["stdout"].getvalue() == f"\x1b[2K\r[5m{wide}\n".encode()
    assert files["stderr"].getvalue() == b"said\n"


def test_only_characters_are_removed_so_that_nothing_between_two_fields_is_hidden() -> None:
    line = f"{'label'}\x1b]0;  12.0 us  WRONG  \x07detail"
    assert "WRONG" in plain(line)
    assert plain_text.plain("x\x1b[ WRONG") == "x[ WRONG"
