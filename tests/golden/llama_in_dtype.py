"""Computes the norms and the angles of Llama in the dtype of its weights. Transformers computes them in
float32 for every dtype."""

import contextlib

import torch
from torch.nn import functional as F
from transformers.models.llama import modeling_llama


def rms_norm(self, x):
    return F.rms_norm(x, (x.shape[-1],), self.weight, self.variance_epsilon)


def angles(self, x, position_ids):
    size = self.config.head_dim
    steps = torch.arange(0, size, 2, dtype=torch.float64) / size
    frequencies = self.config.rope_parameters["rope_theta"] ** -steps
    angle = position_ids[..., None].double() * frequencies
    both = torch.cat((angle, angle), dim=-1)
    return both.cos().to(x.dtype), both.sin().to(x.dtype)


@contextlib.contextmanager
def llama_in_dtype():
    norm, rotary = modeling_llama.LlamaRMSNorm, modeling_llama.LlamaRotaryEmbedding
    before = norm.forward, rotary.forward
    norm.forward, rotary.forward = rms_norm, angles
    try:
        yield
    finally:
        norm.forward, rotary.forward = before
