"""Records products of 8-bit floats, rounded by PyTorch's casts, for tests: writes float8.json.

A scaled value is clamped to the type's range and cast (torch.float8_e4m3fn, torch.float8_e5m2);
products of the rounded values are computed in float32. Tensors are defined by a formula: element i
of x is size * sin(0.37 i + phase) ** 3 (in float64, then rounded to float32). Every 7th element of
each result is recorded.
"""

import json
import math
import pathlib

import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ROWS, IN, OUT = 20, 32, 16
EVERY = 7


def tensor(shape, size, phase):
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    return (size * torch.sin(0.37 * i + phase) ** 3).float().reshape(shape)


def cast(x, dtype, scale):
    limit = torch.finfo(dtype).max
    return (x.float() * scale).clamp(-limit, limit).to(dtype)


def current_scale(x, dtype, power_of_two=False):
    largest = x.abs().max().double().clamp(min=1e-12)
    scale = (torch.finfo(dtype).max / largest).float()
    return torch.exp2(torch.floor(torch.log2(scale))) if power_of_two else scale


def product(a, scale_a, b, scale_b):
    return (a.float() @ b.float().T) * (scale_a.reciprocal() * scale_b.reciprocal())


def casts():
    values = [0.0, -0.0, 1.0, 1.0625, 1.1875, 0.3, -0.7, 447.0, 448.0, 463.9, 464.0, 465.0, 1e9]
    values += [57344.0, 61439.0, 61440.0, -1e30, 2.0**-6, 2.0**-9, 2.0**-10, 3 * 2.0**-10, 2.0**-11]
    values += [2.0**-14, 2.0**-16, 2.0**-17, 3 * 2.0**-17, 1e-30, math.pi, -math.e, 0.017, 240.0]
    values += [(-1) ** i * 1.37**i * 1e-6 for i in range(90)]
    x = torch.tensor(values, dtype=torch.float32)
    one = torch.tensor(1.0)
    result = {"values": x.tolist()}
    for name, dtype in (("e4m3", E4M3), ("e5m2", E5M2)):
        bits = cast(x, dtype, one).view(torch.uint8)
        result[name] = bits.tolist()
        every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
        result[name + "_values"] = [v if math.isfinite(v) else str(v) for v in every.tolist()]
    return result


def layer(x, w, dy, grad_dtype, scales):
    """Returns y, dx, dw of a linear layer with these scales of x, w and dy."""
    x8, w8, dy8 = cast(x, E4M3, scales[0]), cast(w, E4M3, scales[1]), cast(dy, grad_dtype, scales[2])
    return {
        "scales": [float(s) for s in scales],
        "y": product(x8, scales[0], w8, scales[1]).flatten()[::EVERY].tolist(),
        "dx": product(dy8, scales[2], w8.T, scales[1]).flatten()[::EVERY].tolist(),
        "dw": product(dy8.T, scales[2], x8.T, scales[0]).flatten()[::EVERY].tolist(),
    }


def operands(step):
    size = 1.0 + step * 0.8 if step < 4 else 0.5
    return (
        tensor((ROWS, IN), 3.0 * size, 0.1 + step),
        tensor((OUT, IN), 0.5, 0.7),
        tensor((ROWS, OUT), 1e-3 * size, 0.3 + step),
    )


def current(grad_dtype, power_of_two):
    x, w, dy = operands(0)
    scales = [
        current_scale(t, d, power_of_two)
        for t, d in ((x, E4M3), (w, E4M3), (dy, grad_dtype))
    ]
    return layer(x, w, dy, grad_dtype, scales)


def delayed(algorithm, length, margin, interval=1, steps=7):
    """Computes scales like Transformer Engine: they depend on the largest values of earlier steps."""
    scales = [torch.tensor(1.0) for _ in range(3)]
    history = torch.zeros(length, 3)
    ranges = [torch.finfo(E4M3).max, torch.finfo(E4M3).max, torch.finfo(E5M2).max]
    rows = []
    for step in range(steps):
        largest = history[0].clone() if algorithm == "most_recent" else history.max(dim=0).values
        history = torch.roll(history, -1, 0)
        history[0] = 0
        if step % interval == 0:
            for i in range(3):
                if largest[i] > 0:
                    scales[i] = torch.tensor(ranges[i]) / largest[i] / 2.0**margin
        x, w, dy = operands(step)
        rows.append(layer(x, w, dy, E5M2, scales))
        history[0] = torch.stack([t.abs().max() for t in (x, w, dy)])
    return {"rows": rows, "history": history.tolist()}


result = {
    "casts": casts(),
    "current": {
        "hybrid": current(E5M2, False),
        "e4m3": current(E4M3, False),
        "power_of_two": current(E5M2, True),
    },
    "delayed": {
        "most_recent": delayed("most_recent", 4, 0),
        "max": delayed("max", 3, 1),
        "interval": delayed("max", 5, 0, interval=3),
        "shortest": delayed("most_recent", 1, 0),
    },
}
pathlib.Path(__file__).with_name("float8.json").write_text(json.dumps(result))
