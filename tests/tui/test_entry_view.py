"""An entry on the screen: rendered, not raw Markdown."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from kernbench.tui.pages import entry_view

ENTRY = r"""## 9 · 16-byte loads of m\[bf16] · 1.31x · improved
- when 2026-11-17 14:16 UTC · source 4276dff5
- command: `kernbench run softmax_host`
- hypothesis: 16-byte loads
- result: geomean 1.31x ±0.4% over 2 cases; worst a 0.87x; not best: 1.001x vs best
- a note of mine

| case | baseline us | verdict |
| --- | ---: | --- |
| a\|b | 2400 | ▲ faster |
| longer name | 9.1 | WRONG |

```python
| no | table |
```
<!-- kernbench {"schema":1} -->
"""


def shown(width: int = 80, ascii_only: bool = False) -> list[str]:
    return ["".join(text for text, _ in line) for line in entry_view.lines(ENTRY, width, ascii_only)]


def test_an_entry_is_rendered() -> None:
    assert shown() == [
        "9 · 16-byte loads of m[bf16] · 1.31x · improved",
        "",
        "when        2026-11-17 14:16 UTC · source 4276dff5",
        "command     kernbench run softmax_host",
        "hypothesis  16-byte loads",
        "result      geomean 1.31x ±0.4% over 2 cases",
        "            worst a 0.87x",
        "            not best: 1.001x vs best",
        "- a note of mine",
        "",
        "case         baseline us  verdict ",
        "a|b                 2400  ▲ faster",
        "longer name          9.1  WRONG   ",
        "",
        "```python",
        "| no | table |",
        "```",
    ]


def test_verdicts_have_their_color() -> None:
    styles = {text.strip(): style for line in entry_view.lines(ENTRY, 80) for text, style in line}
    assert (styles["▲ faster"], styles["WRONG"], styles["not best: 1.001x vs best"]) == ("faster", "bad", "warn")


@pytest.mark.parametrize("width", [10, 40, 200])
def test_facts_are_wrapped(width: int) -> None:
    assert max(cell_len(line) for line in shown(width)[:9]) <= max(width, 50 if width < 40 else width)
    assert all(line.isascii() for line in shown(width, ascii_only=True))
