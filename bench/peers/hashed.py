"""Weights and data that are hashes of their indices, as in bench/hashed.h, so that programs of
several engines train the same model with the same data."""

import math

import torch

DATA_KEY = 1 << 20


def hashed(key, count, device):
    """Returns numbers 0 to count - 1 of the sequence `key`."""
    low = 0xFFFFFFFF
    h = torch.arange(count, dtype=torch.int64, device=device)
    h = (h * 0x9E3779B1 + key * 0x85EBCA6B + 0x27D4EB2F) & low
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & low
    h = ((h ^ (h >> 15)) * 0x846CA68B) & low
    return h ^ (h >> 16)


def hashed_floats(key, shape, bound, device):
    bits = hashed(key, math.prod(shape), device) >> 8
    return ((bits.double() * 2.0**-23 - 1) * bound).float().view(shape)


def hashed_ids(key, shape, limit, device):
    return (hashed(key, math.prod(shape), device) % limit).view(shape)


def set_hashed_weights(model, layers, device, bound=None):
    """Sets the parameters. Matrices of GPT blocks are numbered as if they were transposed. For a
    model without such blocks (layers = 0), the bound of PyTorch's layers is used unless a bound is
    given."""
    with torch.no_grad():
        for key, (name, p) in enumerate(model.named_parameters()):
            if p.dim() < 2:
                p.fill_(0 if name.endswith("bias") else 1)
            elif layers:
                bound = 0.02 * math.sqrt(3.0)
                if name.endswith(("proj.weight", "down.weight")):
                    bound /= math.sqrt(2 * layers)
                if name.startswith("blocks."):
                    p.copy_(hashed_floats(key, p.shape[::-1], bound, device).t())
                else:
                    p.copy_(hashed_floats(key, p.shape, bound, device))
            else:
                fan_in_bound = 1 / math.sqrt(p.numel() / p.shape[0])
                p.copy_(hashed_floats(key, p.shape, bound or fan_in_bound, device))
