#!/usr/bin/env python3
"""Runs the training steps of train_step.py in JAX, and prints the same line of JSON.

The whole step is one compiled function whose parameters and optimizer state are donated, so that
XLA updates them in place. The process runs on as many CPUs as it has threads, because XLA's CPU
client starts a thread on each CPU. With --dtype bf16, products and convolutions have bf16 operands,
as under autocast, and everything else is in f32.
"""

import argparse
import json
import os
import platform
import sys


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default="char-gpt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--turns", action="store_true",
                        help="measure again for each line of the standard input")
    return parser.parse_args()


ARGUMENTS = parse()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: ARGUMENTS.threads])
os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402  (must see the affinity mask)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from step_timer import StepTimer  # noqa: E402

RANDOM = np.random.default_rng(1)
DTYPE = jnp.bfloat16 if ARGUMENTS.dtype == "bf16" else jnp.float32


def normal(*shape, std=None):
    fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[:-1]))
    return jnp.asarray(RANDOM.normal(0, std or fan_in**-0.5, shape), jnp.float32)


def linear(x, weight, bias=None):
    y = (x.astype(DTYPE) @ weight.astype(DTYPE)).astype(jnp.float32)
    return y if bias is None else y + bias


def cross_entropy(logits, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -chosen.mean()


# Each model returns its parameters, a function loss(parameters, x, y), and x and y.


def mlp(batch, *widths):
    params = [(normal(a, b), jnp.zeros(b)) for a, b in zip(widths, widths[1:])]

    def loss(params, x, y):
        for weight, bias in params[:-1]:
            x = jax.nn.relu(linear(x, weight, bias))
        return cross_entropy(linear(x, *params[-1]), y)

    return params, loss, normal(batch, widths[0], std=1), RANDOM.integers(10, size=batch)


def convolution(x, weight, stride=1, padding=0):
    y = lax.conv_general_dilated(x.astype(DTYPE), weight.astype(DTYPE), (stride, stride),
                                 [(padding, padding)] * 2,
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y.astype(jnp.float32)


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def lenet(batch):
    params = [(normal(5, 5, 1, 6), jnp.zeros(6)), (normal(5, 5, 6, 16), jnp.zeros(16))]
    params += [(normal(a, b), jnp.zeros(b)) for a, b in ((400, 120), (120, 84), (84, 10))]

    def loss(params, x, y):
        for (weight, bias), padding in zip(params[:2], (2, 0)):
            x = max_pool(jax.nn.relu(convolution(x, weight, padding=padding) + bias))
        x = x.reshape(batch, -1)
        for weight, bias in params[2:4]:
            x = jax.nn.relu(linear(x, weight, bias))
        return cross_entropy(linear(x, *params[4]), y)

    return params, loss, normal(batch, 28, 28, 1, std=1), RANDOM.integers(10, size=batch)


def batch_norm(x, scale, shift):
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * (lax.rsqrt(var + 1e-5) * scale) + shift


def resnet18(batch):
    """Without running statistics, which favors JAX a little."""

    def norm(channels):
        return jnp.ones(channels), jnp.zeros(channels)

    blocks, channels = [], 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for index in range(2):
            stride = 2 if stage > 0 and index == 0 else 1
            block = {"1": (normal(3, 3, channels, width), norm(width)),
                     "2": (normal(3, 3, width, width), norm(width))}
            if stride == 2:
                block["down"] = (normal(1, 1, channels, width), norm(width))
            blocks.append(block)
            channels = width
    params = ((normal(3, 3, 3, 64), norm(64)), blocks, (normal(512, 10), jnp.zeros(10)))

    def loss(params, x, y):
        (weight, first), blocks, head = params
        x = jax.nn.relu(batch_norm(convolution(x, weight, padding=1), *first))
        for block in blocks:
            stride = 2 if "down" in block else 1
            weight, scale = block["1"]
            h = jax.nn.relu(batch_norm(convolution(x, weight, stride, 1), *scale))
            weight, scale = block["2"]
            h = batch_norm(convolution(h, weight, 1, 1), *scale)
            if stride == 2:
                weight, scale = block["down"]
                x = batch_norm(convolution(x, weight, stride), *scale)
            x = jax.nn.relu(x + h)
        return cross_entropy(linear(x.mean((1, 2)), *head), y)

    return params, loss, normal(batch, 32, 32, 3, std=1), RANDOM.integers(10, size=batch)


def layer_norm(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    y = (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale
    return y if shift is None else y + shift


def gpt(batch, steps, vocab, positions, layers, heads, width, bias, approximate):
    def affine(rows, columns, std=0.02):
        return normal(rows, columns, std=std), jnp.zeros(columns) if bias else None

    def norm():
        return jnp.ones(width), jnp.zeros(width) if bias else None

    residual = 0.02 / (2 * layers) ** 0.5
    blocks = [{"ln_1": norm(), "qkv": affine(width, 3 * width),
               "proj": affine(width, width, residual), "ln_2": norm(),
               "up": affine(width, 4 * width), "down": affine(4 * width, width, residual)}
              for _ in range(layers)]
    params = (normal(vocab, width, std=0.02), normal(positions, width, std=0.02), blocks, norm())

    def attention(x, block):
        qkv = linear(layer_norm(x, *block["ln_1"]), *block["qkv"])
        q, k, v = (qkv.reshape(batch, steps, 3, heads, -1)[:, :, i] for i in range(3))
        y = jax.nn.dot_product_attention(q.astype(DTYPE), k.astype(DTYPE), v.astype(DTYPE),
                                         is_causal=True)
        return linear(y.reshape(batch, steps, width), *block["proj"])

    def loss(params, ids, labels):
        tokens, positions, blocks, norm = params
        x = tokens[ids] + positions[:steps]
        for block in blocks:
            x = x + attention(x, block)
            h = linear(layer_norm(x, *block["ln_2"]), *block["up"])
            x = x + linear(jax.nn.gelu(h, approximate=approximate), *block["down"])
        logits = linear(layer_norm(x, *norm), tokens.T)
        return cross_entropy(logits.reshape(-1, vocab), labels.reshape(-1))

    ids, labels = RANDOM.integers(vocab, size=(2, batch, steps))
    return params, loss, ids, labels


MODELS = {
    "mlp": lambda: mlp(128, 784, 512, 512, 10),
    "tiny-mlp": lambda: mlp(8, 64, 64, 10),
    "lenet": lambda: lenet(64),
    "resnet18": lambda: resnet18(32),
    "char-gpt": lambda: gpt(12, 64, 65, 64, 4, 4, 128, False, False),
    "gpt2": lambda: gpt(4, 64, 50257, 1024, 12, 12, 768, True, True),
    "gpt2-1024": lambda: gpt(1, 1024, 50257, 1024, 12, 12, 768, True, True),
}


def sgd_step(loss):
    def step(params, state, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return value, jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), state

    return step, lambda params: ()


def adamw_step(loss):
    """AdamW with clipping of the gradient's norm to 1."""

    def step(params, state, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(grads)))
        factor = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
        t, first, second = state
        t = t + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * factor * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * (factor * g) ** 2, second, grads)

        def updated(p, m, v):
            direction = m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8)
            return p - 1e-3 * (0.1 * p + direction)

        return value, jax.tree.map(updated, params, first, second), (t, first, second)

    def start(params):
        return jnp.float32(0), jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like,
                                                                                  params)

    return step, start


def main():
    if ARGUMENTS.model not in MODELS:
        sys.exit(f"jax_step: {ARGUMENTS.model} is not written: it has {', '.join(MODELS)}")
    params, loss, x, y = MODELS[ARGUMENTS.model]()
    is_gpt = "gpt" in ARGUMENTS.model
    step, start = (adamw_step if is_gpt else sgd_step)(loss)
    step = jax.jit(step, donate_argnums=(0, 1))
    state, x, y = start(params), jnp.asarray(x), jnp.asarray(y)
    items = x.size if is_gpt else x.shape[0]

    def run_step():
        nonlocal params, state
        value, params, state = step(params, state, x, y)
        return jax.block_until_ready((value, params))[0]

    timer = StepTimer(run_step, 1, ARGUMENTS.steps)

    def report():
        measured = timer.measure()
        print(json.dumps({
            "engine": "jax",
            "version": jax.__version__,
            "python": platform.python_version(),
            "model": ARGUMENTS.model,
            "dtype": ARGUMENTS.dtype,
            "threads": ARGUMENTS.threads,
            "processes": 1,
            "tokens_per_s": 1e3 * items / measured["ms_per_step"],
            **measured,
        }), flush=True)

    report()
    if ARGUMENTS.turns:
        timer.take_turns(report)


if __name__ == "__main__":
    main()
