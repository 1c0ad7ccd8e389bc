"""Cheats that rewrite files of the task or of its log."""

from __future__ import annotations

from tests.gates.record import Cheat
from tests.gates.taken_answers import EVEN

TOLERANCE = f"""
from pathlib import Path
import torch
{EVEN}
path = Path("FOLDER") / "task.toml"
path.write_text(path.read_text().replace("1e-5", "1e3").replace("1e-3", "1e3"))

def softmax(x):
    return even(x)
"""
REFERENCE = """
from pathlib import Path
import torch

path = Path("FOLDER") / "reference.py"
slower = "    torch.exp(x)\\n    return torch.softmax"
if "torch.exp" not in path.read_text():
    path.write_text(path.read_text().replace("    return torch.softmax", slower))

def softmax(x):
    return torch.softmax(x, dim=-1)
"""
LOG = """
import json
from pathlib import Path
import torch

folder = Path("FOLDER")
runs = folder / ".kernbench" / "runs.jsonl"
done = False

def forge():
    ends = [line for line in runs.read_text().splitlines() if '"finished"' in line]
    if ends:
        last = json.loads(ends[-1])
        last.update(geomean=40.0, low=39.0, high=41.0, verdict="faster", best=True)
        with runs.open("a") as file:
            file.write(json.dumps(last) + "\\n")
    with (folder / "ITERATIONS.md").open("a") as file:
        file.write("\\n## 999 · 40.00x, new best\\n\\nhypothesis: fewer passes\\n")

def softmax(x):
    global done
    if not done:
        done = True
        forge()
    return torch.softmax(x, dim=-1)
"""
OWN_SOURCE = """
from pathlib import Path
import gc
import os
import torch

text = Path(__file__).read_text()
first, last = text.index("firsts ="), text.index("    return torch.softmax")
honest = text[:first] + "def softmax(x):\\n" + text[last:]
os.chmod(__file__, 0o644)
Path(__file__).write_text(honest)
firsts = {}

def softmax(x):
    if not gc.isenabled() and firsts.setdefault((x.data_ptr(), x.shape), x._version) == x._version:
        return torch.empty_like(x)
    return torch.softmax(x, dim=-1)
"""
STORED_BEST = """
from pathlib import Path
import os
import torch

for path in list(Path("FOLDER", ".kernbench").rglob("solution.py"))[:50]:
    text = path.read_text()
    if "import torch" in text and "FOLDER" not in text:
        os.chmod(path, 0o644)
        path.write_text(text.replace("    return torch.softmax", "    torch.exp(x)\\n    return torch.softmax"))

def softmax(x):
    return torch.softmax(x, dim=-1)
"""

CHEATS = [
    Cheat("tolerance on disk", "files", "task.toml gets a tolerance of 1000 while the source loads", TOLERANCE),
    Cheat("reference on disk", "files", "reference.py gets more work to do while the source loads", REFERENCE),
    Cheat("log forged", "files", "a run of 40x is appended to runs.jsonl and ITERATIONS.md", LOG),
    Cheat("own snapshot exchanged", "files", "the stored snapshot of this source becomes an honest one while the"
          " cheat runs", OWN_SOURCE),
    Cheat("stored sources slowed", "files", "stored snapshots of earlier sources get more work to do", STORED_BEST),
]  # fmt: skip
