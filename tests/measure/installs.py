"""Does an install change torch or triton? Asks pip what it would do, for a few versions of torch.

    python tests/measure/installs.py

For each version a new environment gets the records that pip keeps of an installed torch and triton, without the
packages themselves (gigabytes), and pip is asked what `pip install .` would install. Needs a package index for the
other dependencies, and takes a quarter of a minute each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = {"2.6.0": "3.2.0", "2.7.1": "3.3.1", "2.15.0": "3.9.0"}
"""Of torch, each with the triton that its x86 build for Linux requires."""


def record(site: Path, name: str, version: str, *requires: str) -> None:
    """What pip knows of an installed package."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (folder / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {item}" for item in requires)]) + "\n")
    (folder / "INSTALLER").write_text("pip\n")
    (folder / "RECORD").write_text("")


def would_install(python: Path) -> dict[str, str]:
    command = [str(python), "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-", str(ROOT)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {
        item["metadata"]["name"].lower(): item["metadata"]["version"] for item in json.loads(done.stdout)["install"]
    }


def main() -> int:
    changed = 0
    for torch, triton in VERSIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True)
            python = Path(folder, "bin", "python")
            code = "import sysconfig; print(sysconfig.get_path('purelib'))"
            site = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
            record(Path(site), "torch", torch, f"triton=={triton}")
            record(Path(site), "triton", triton)
            found = would_install(python)
        touched = sorted({"torch", "triton"} & set(found))
        changed += bool(touched)
        verdict = f"would change {' and '.join(touched)}" if touched else "both stay"
        print(f"torch {torch}, triton {triton}: {verdict}; pip would install {', '.join(sorted(found))}", flush=True)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
