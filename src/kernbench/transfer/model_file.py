"""Finds models and reads model.toml.

A model is a folder with a model.toml, named by its path or by its name; names are looked up in `models` and
`kernels/models` here and in each folder above, as tasks are, and last among the models that kernbench ships.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.shared.model_step import Limits, ModelFile, Rewrite, Site
from harness.shared.taskfile.values import (
    TaskError,
    choice,
    flag,
    known_keys,
    plain_data,
    positive,
    tables,
    text,
    texts,
    toml,
)
from kernbench.programs.searched_log import SIGNALS
from kernbench.task import lookup, snapshot
from kernbench.task.lookup import ProjectError

MODEL_FILE = "model.toml"
MODELS_FOLDER = "models"
TINY = "tiny"
"""The config for a CPU."""
DTYPES = ("bfloat16", "float16", "float32")
KEYS = frozenset("title program dtype needs wants forbid configs limits site rewrite operators".split())
COMMAND_KEYS = frozenset("title command environment wants limit_s forbid configs site rewrite".split())
"""Of a model that is a command."""
DUMP = "{dump}"


def find_model(name: str, cwd: Path | None = None) -> Path:
    cwd = (cwd or Path.cwd()).absolute()
    if (cwd / name / MODEL_FILE).is_file():
        return (cwd / name).resolve()
    known = models(cwd)
    if name in known:
        return known[name].resolve()
    raise ProjectError(f"no model {name!r} here; available: {', '.join(known) or 'none'}")


def models(cwd: Path | None = None) -> dict[str, Path]:
    """Every model that can be used from here, by name; of two with the same name, the nearer."""
    found: dict[str, Path] = {}
    for place in (*lookup.places((cwd or Path.cwd()).absolute()), lookup.shipped_folder()):
        for path in sorted(place.glob(f"{MODELS_FOLDER}/*/{MODEL_FILE}")):
            found.setdefault(path.parent.name, path.parent)
    return found


def tasks_of(folder: Path) -> frozenset[str]:
    """The tasks that a model has sites for, without a look at the rest of it: a screen asks this of every model."""
    data = toml(folder / MODEL_FILE, f"no {MODEL_FILE} there")
    sites = tables(folder / MODEL_FILE, "site", data.get("site", []))
    return frozenset(text(folder / MODEL_FILE, "site.task", item.get("task")) for item in sites)


def load(folder: Path, config: str | None, on_cpu: bool) -> ModelFile:
    path = folder / MODEL_FILE
    data = toml(path, f"no {MODEL_FILE} there")
    is_command = "command" in data
    known_keys(path, "", data, COMMAND_KEYS if is_command else KEYS)
    configs = {"": {}} if is_command and "configs" not in data else _configs(path, data.get("configs"))
    if config is not None and config not in configs:
        raise TaskError(path, "configs", f"there is no {config!r}; there are {', '.join(filter(None, configs))}")
    chosen = config or (TINY if on_cpu and not is_command and TINY in configs else next(iter(configs)))
    sites = tuple(_sites(path, data.get("site", []), is_command))
    if not sites:
        raise TaskError(path, "site", "missing; [[site]] says what a task's entry replaces")
    model = ModelFile(
        name=folder.name,
        folder=str(folder),
        title=text(path, "title", data.get("title")),
        program="",
        dtype="",
        config_name=chosen,
        config=dict(configs[chosen]),
        sites=sites,
        rewrites=tuple(_rewrites(path, data.get("rewrite", []))),
        wants=texts(path, "wants", data.get("wants", [])),
        forbid=(*SIGNALS, *texts(path, "forbid", data.get("forbid", []))),
        hash=snapshot.sha_of(folder, folder / lookup.STATE_FOLDER),
    )
    return _command(path, data, model) if is_command else _program(path, data, model)


def _program(path: Path, data: dict[str, Any], model: ModelFile) -> ModelFile:
    values = dict(model.config)
    dtype = choice(path, "dtype", values.pop("dtype", data.get("dtype")), DTYPES)
    return replace(
        model,
        program=text(path, "program", data.get("program")),
        dtype=dtype,
        config=values,
        operators=_operators(path, data.get("operators", {})),
        limits=_limits(path, data.get("limits", {})),
        needs=texts(path, "needs", data.get("needs", [])),
    )


def _command(path: Path, data: dict[str, Any], model: ModelFile) -> ModelFile:
    words = texts(path, "command", data["command"])
    if not any(DUMP in word for word in words):
        raise TaskError(path, "command", f"has no {DUMP}, the file that it writes its perf dump to")
    environment = data.get("environment", {})
    if not isinstance(environment, dict):
        raise TaskError(path, "environment", "must be a table of variables")
    return replace(
        model,
        command=words,
        environment={name: text(path, f"environment.{name}", value) for name, value in environment.items()},
        limit_s=positive(path, "limit_s", data.get("limit_s", model.limit_s)),
    )


def _configs(path: Path, value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not value or not all(isinstance(item, dict) for item in value.values()):
        raise TaskError(path, "configs", "must be [configs.NAME] tables, one at least: the keywords of `build`")
    for name, table in value.items():
        plain_data(path, f"configs.{name}", table)
    return value


def _sites(path: Path, value: Any, is_command: bool) -> list[Site]:
    """Whether a command compiles is its own affair."""
    found, keys = [], frozenset(("call", "task", "adapter") if is_command else ("call", "task", "adapter", "compiled"))
    for item in tables(path, "site", value):
        known_keys(path, "site", item, keys)
        call, adapter = (_place(path, f"site.{name}", item.get(name)) for name in ("call", "adapter"))
        compiled = flag(path, "site.compiled", item.get("compiled", True))
        found.append(Site(call, text(path, "site.task", item.get("task")), adapter, compiled))
    return found


def _rewrites(path: Path, value: Any) -> list[Rewrite]:
    found = []
    for item in tables(path, "rewrite", value):
        known_keys(path, "rewrite", item, frozenset(("call", "by")))
        found.append(Rewrite(*(_place(path, f"rewrite.{name}", item.get(name)) for name in ("call", "by"))))
    return found


def _operators(path: Path, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TaskError(path, "operators", "must be a table: a task's name and MODULE:NAME")
    return {task: _place(path, f"operators.{task}", name) for task, name in value.items()}


def _place(path: Path, key: str, value: Any) -> str:
    """MODULE:NAME."""
    name = text(path, key, value)
    module, _, inside = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *inside.split("."))):
        raise TaskError(path, key, f"{name!r} is not MODULE:NAME, such as layers:gated_sum")
    return name


def _limits(path: Path, value: Any) -> Limits:
    if not isinstance(value, dict):
        raise TaskError(path, "limits", "must be a table")
    known_keys(path, "limits", value, frozenset(("relative_l2", "psnr_db", "fp32_ratio", "drift_l2")))
    return Limits(**{name: positive(path, f"limits.{name}", item) for name, item in value.items()})
