"""Whether tensors have the form for which a plan was made: type, dtype, device, shape and strides of all of them.

Torch has one function for it, with which torch.compile guards its graphs. For six tensors it saves 0.7 us of the 8.2
that a call took, beside an H200, with a key of dtypes, shapes and strides asked for one by one.
"""

from __future__ import annotations

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:
    TensorGuards = None


def same_form_as(*tensors):
    """A function of as many tensors that tells whether each has the form of its example."""
    if TensorGuards is not None:
        shapes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
        same = TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
        if same(*tensors):  # it is not where one tensor is given twice
            return same
    forms = [_form(x) for x in tensors]
    return lambda *others: [_form(x) for x in others] == forms


def _form(x):
    return type(x), x.dtype, x.device, x.shape, x.stride()
