"""What right means for residual_gate_add, and what there is to beat: sums in fp32, rounded once.

Two variants of one entry: `residual_gate_add` of residual, update and gate; `broadcast_add_4d` of a table `a` and the
frames `b` that it is added to.
"""

from __future__ import annotations

import torch

GATES = {
    "full": lambda batch, tokens, cols: (batch, tokens, cols),
    "batch": lambda batch, tokens, cols: (batch, 1, cols),
    "row": lambda batch, tokens, cols: (1, 1, cols),
}


def spelled_out(case):
    """The axes of a case, with what `form` stands for."""
    if "form" not in case:
        return case
    variant, rest = case["form"].split()
    more = {"gate": rest} if variant == "residual_gate_add" else {"parts": int(rest), "batch": 1}
    return {**case, "variant": variant, **more}


def shapes(case):
    """By argument; `tokens` of a broadcast sum are its frames."""
    batch, tokens, cols = case["batch"], case["tokens"], case["cols"]
    if case["variant"] == "broadcast_add_4d":
        return {"a": (1, 1, case["parts"], cols), "b": (1, tokens, case["parts"], cols)}
    full = (batch, tokens, cols)
    return {"residual": full, "update": full, "gate": GATES[case["gate"]](*full)}


def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    """`start`: how many elements into its buffer a tensor begins. `values`: normal, signs (1, -1, 0, -0) or zeros."""
    case = spelled_out(case)
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype, start, values = getattr(torch, case["dtype"]), case.get("start", 0), case.get("values", "normal")

    def drawn(name, shape):
        size = start + torch.Size(shape).numel()
        flat = torch.randn(size, generator=generator, device=device)
        if values == "signs":
            kinds = torch.tensor([1.0, -1.0, 0.0, -0.0], device=device)
            flat = kinds[torch.randint(4, (size,), generator=generator, device=device)]
        elif values == "zeros" and name == "gate":
            flat = torch.zeros_like(flat)
        if name != "gate":
            flat = flat * spread + offset
        return flat.to(dtype)[start:].view(shape)

    return {"variant": case["variant"], **{name: drawn(name, shape) for name, shape in shapes(case).items()}}


def residual_gate_add(variant, **operands):
    first = operands["b" if variant == "broadcast_add_4d" else "residual"]
    return _summed(torch.float32, **operands).to(first.dtype)


def truth(variant, **operands):
    return _summed(torch.float64, **operands)


def _summed(wide, residual=None, update=None, gate=None, a=None, b=None):
    if residual is None:
        return a.to(wide) + b.to(wide)
    return residual.to(wide) + update.to(wide) * gate.to(wide)


def traffic(case):
    """Bytes read, bytes written, flops of one call: every operand in once, the sum out once."""
    case = spelled_out(case)
    size = getattr(torch, case["dtype"]).itemsize
    counts = {name: torch.Size(shape).numel() for name, shape in shapes(case).items()}
    full = max(counts.values())
    return sum(counts.values()) * size, full * size, full * (1 if "b" in counts else 2)
