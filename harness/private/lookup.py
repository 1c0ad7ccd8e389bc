"""Looks up private names once; a missing name is None, never an exception.

A path is "module:attribute.attribute", or just a module. Names are looked up only when needed: importing Dynamo takes
seconds.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import operator
import sys
from collections.abc import Mapping
from typing import Any


class PrivateNames:
    """The private names of one library in use, each with the effect of its absence."""

    def __init__(self, without: Mapping[str, str]) -> None:
        self.without = without
        self._found: dict[str, Any] = {}

    def find(self, path: str) -> Any:
        """The object at the path; None if this version lacks it."""
        if path not in self._found:
            if path not in self.without:
                raise KeyError(f"{path} is not in the table of private names")
            self._found[path] = _find(path)
        return self._found[path]

    def missing(self) -> dict[str, str]:
        """The missing names, with the effect of each; a path without an attribute is checked without importing it."""
        return {path.replace(":", "."): text for path, text in self.without.items() if not _exists(path)}


def _find(path: str) -> Any:
    module, _, attribute = path.partition(":")
    with contextlib.suppress(Exception):  # an installed module may still fail to import
        found = importlib.import_module(module)
        return operator.attrgetter(attribute)(found) if attribute else found
    return None


def _exists(path: str) -> bool:
    return _find(path) is not None if ":" in path else _module_exists(path)


@functools.cache
def _module_exists(name: str) -> bool:
    """Imports neither the module nor its parent packages: torch._inductor alone takes two seconds."""
    if name in sys.modules:
        return sys.modules[name] is not None
    parts, places = name.split("."), None
    for end in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), places)
        if spec is None:
            return False
        places = list(spec.submodule_search_locations or ())
    return True
