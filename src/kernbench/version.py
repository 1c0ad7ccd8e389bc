"""The version of kernbench: in entries, exports and the wheel; with the state of its checkout in `--version`."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"
ROOT = Path(__file__).resolve().parents[2]
"""Of a checkout; an installed package has no .git there."""
DIGITS = 9
SECONDS = 5.0


def described(root: Path = ROOT) -> str:
    """`0.1.0`, or `0.1.0 (9f1c2ab4d, dirty)` in a checkout; a bug report needs both."""
    state = ", ".join(_checkout(root) if (root / ".git").exists() else _installed())
    return f"{__version__} ({state})" if state else __version__


def _checkout(root: Path) -> list[str]:
    """The commit, and `dirty` if tracked files were changed since; empty without git."""
    from kernbench.machine.git import Git

    git = Git(root)
    commit = git.ask("rev-parse", f"--short={DIGITS}", "HEAD", seconds=SECONDS)
    changed = git.status("--untracked-files=no", seconds=SECONDS)
    return [commit, *(["dirty"] if changed else [])] if commit else []


def _installed() -> list[str]:
    """The commit that `pip install git+...` took, as pip notes it."""
    import json
    from importlib import metadata

    try:
        noted = metadata.distribution("kernbench").read_text("direct_url.json")
        return [json.loads(noted)["vcs_info"]["commit_id"][:DIGITS]] if noted else []
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):  # installed in another way
        return []
