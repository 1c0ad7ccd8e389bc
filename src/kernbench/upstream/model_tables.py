"""The part of a pull request that is about models: what a step came to with the source in it."""

from __future__ import annotations

from kernbench.upstream.model_gate import ModelGate


def section(said: ModelGate) -> list[str]:
    """Markdown lines; of a model that ran no step with this source, only that."""
    lines = [f"- {remark}" for remark in said.remarks]
    lines += [f"- shown with `--anyway`: {said.refusal}"] if said.refused else []
    return ["## In a model", "", *lines, ""]
