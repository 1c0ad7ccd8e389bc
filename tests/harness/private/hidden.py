"""Private names taken away, as a later torch or triton might: in this process for one test, or in one of its own.

What torch and triton themselves go on using is only hidden from the harness.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable

import pytest

from harness.private import lookup

NEEDED = (
    "torch.utils._python_dispatch:TorchDispatchMode",
    "torch._C:DispatchKey",
    "torch._C:DispatchKeySet",
    "torch._C:_dispatch_has_computed_kernel_for_dispatch_key",
    "torch._ops:OpOverload.redispatch",
    "torch._library.custom_ops:OPDEF_TO_LIB",
    "triton.runtime.cache:triton_key",
    "triton.experimental.gluon.nvidia.hopper",
)
"""By torch for custom operators, and by triton to compile."""
HIDE = """
def hide():
    import importlib, operator, sys
    from harness.private import lookup

    for library in {libraries!r}:
        importlib.import_module(library)
    for path in {taken!r}:
        module, _, name = path.partition(":")
        if name:
            owner, _, last = name.rpartition(".")
            found = importlib.import_module(module)
            delattr(operator.attrgetter(owner)(found) if owner else found, last)
        else:
            sys.modules[module] = None
    find = lookup._find
    lookup._find = lambda path: None if path in {hidden!r} else find(path)
hide()
"""


def code(paths: Iterable[str], *libraries: str) -> str:
    """For another process: imports the libraries, then takes the names away."""
    taken = [path for path in paths if path not in NEEDED]
    return HIDE.format(taken=taken, hidden=[path for path in paths if path in NEEDED], libraries=libraries)


def hide(patch: pytest.MonkeyPatch, names: lookup.PrivateNames, *paths: str) -> None:
    """In this process, until the patch is undone; what was found before is forgotten."""
    find = lookup._find
    patch.setattr(lookup, "_find", lambda path: None if path in paths and path in NEEDED else find(path))
    patch.setattr(names, "_found", {})
    for path in paths:
        module, _, name = path.partition(":")
        if path in NEEDED:
            continue
        if not name:
            patch.setitem(sys.modules, module, None)
            continue
        owner = importlib.import_module(module)
        *outer, last = name.split(".")
        for part in outer:
            owner = getattr(owner, part)
        patch.delattr(owner, last)
