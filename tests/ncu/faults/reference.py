"""Inputs for the faulty kernels; what they compute is of no interest, so the reference is a copy."""

import torch


def make_inputs(case, seed, device):
    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.rand(case["count"], generator=generator, device=device), "fault": case["fault"]}


def faulty(x, fault):
    return x.clone()
