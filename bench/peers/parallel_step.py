#!/usr/bin/env python3
"""Runs the training steps of bench_parallel_step in PyTorch, and prints the same line of JSON.

With --parallel tensor under torchrun, parallelize_module divides the Llama as PyTorch's tutorial on
tensor parallelism does: projections by columns and rows, the embedding by rows, and the loss from
divided logits (loss_parallel). With --parallel none, one process trains the whole model. PyTorch's
context_parallel does not support attention on CPUs, so there is no peer for allgather and alltoall.
"""

import argparse
import contextlib
import json
import os
import platform

import torch
import torch.nn.functional as F
from hashed import DATA_KEY, hashed_ids, set_hashed_weights
from torch import nn
from torch.distributed.tensor import DTensor
from step_timer import StepTimer

BATCH, TIME, VOCABULARY, WIDTH, LAYERS, HEADS, KEY_VALUE_HEADS = 2, 512, 4096, 256, 4, 8, 4
SIZE = WIDTH // HEADS  # width of a head


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.k_proj = nn.Linear(WIDTH, KEY_VALUE_HEADS * SIZE, bias=False)
        self.v_proj = nn.Linear(WIDTH, KEY_VALUE_HEADS * SIZE, bias=False)
        self.o_proj = nn.Linear(HEADS * SIZE, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        batch, steps, _ = x.shape
        q, k, v = (project(x).view(batch, steps, -1, SIZE).transpose(1, 2)
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, steps, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, 688, bias=False)
        self.up_proj = nn.Linear(WIDTH, 688, bias=False)
        self.down_proj = nn.Linear(688, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), Mlp()
        self.input_layernorm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """A Llama with the parameter names of Hugging Face, in the same order."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.model.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.model.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(TIME), 10000.0 ** (-torch.arange(0, SIZE, 2) / SIZE))
        self.cos = torch.cat((angles, angles), -1).cos()
        self.sin = torch.cat((angles, angles), -1).sin()

    def forward(self, ids, labels):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.lm_head(self.model.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def divide(model):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    parallelize_module(model, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "model.layers.*.self_attn.q_proj": ColwiseParallel(),
        "model.layers.*.self_attn.k_proj": ColwiseParallel(),
        "model.layers.*.self_attn.v_proj": ColwiseParallel(),
        "model.layers.*.self_attn.o_proj": RowwiseParallel(),
        "model.layers.*.mlp.gate_proj": ColwiseParallel(),
        "model.layers.*.mlp.up_proj": ColwiseParallel(),
        "model.layers.*.mlp.down_proj": RowwiseParallel(),
        "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    })


def clip(divided, whole, max_norm):
    """Clips the gradients of divided and of whole parameters to one norm."""
    parts = [[p.grad.to_local() for p in divided], [p.grad for p in whole]]
    squares = [torch.stack(torch._foreach_norm(part)).square().sum() for part in parts if part]
    if divided:
        torch.distributed.all_reduce(squares[0])
    scale = (max_norm / (torch.stack(squares).sum().sqrt() + 1e-6)).clamp(max=1)
    torch._foreach_mul_(sum(parts, []), scale)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parallel", choices=("none", "tensor"), default="none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    processes, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    model = Llama()
    set_hashed_weights(model, 0, "cpu", bound=0.02 * 3.0**0.5)
    data = [hashed_ids(DATA_KEY + i, (BATCH, TIME), VOCABULARY, "cpu") for i in range(2)]
    loss_scope = contextlib.nullcontext
    if arguments.parallel == "tensor":
        from torch.distributed.tensor.parallel import loss_parallel as loss_scope

        torch.distributed.init_process_group("gloo")
        divide(model)
    divided = [p for p in model.parameters() if isinstance(p, DTensor)]
    whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
    groups = [{"params": part} for part in (divided, whole) if part]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)

    def step():
        with loss_scope():
            loss = model(*data)
            loss.backward()
        clip(divided, whole, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.full_tensor() if isinstance(loss, DTensor) else loss

    measured = StepTimer(step, 5, arguments.steps).measure()
    if rank == 0:
        print(json.dumps({
            "engine": "torch",
            "version": torch.__version__,
            "python": platform.python_version(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "model": "llama",
            "parallel": arguments.parallel,
            "threads": arguments.threads,
            "processes": processes,
            "tokens_per_s": 1e3 * BATCH * TIME / measured["ms_per_step"],
            **measured,
        }), flush=True)
    if processes > 1:
        torch.distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
