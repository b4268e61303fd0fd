"""Records PyTorch's optimizers and gradient clipping, for tests/optim: writes optim.json.

The parameters have the shapes a = (3, 2) and b = (3,). Element i of the nine starts at cos(0.7 i),
and its gradient in step t (from 1) is (0.5 + 0.1 i) p + 0.5 sin(0.3 t + i). All in float64.
"""

import json
import math
import pathlib

import torch

STEPS = 50
EVERY = 5


def values(params):
    return torch.cat([p.detach().flatten() for p in params]).tolist()


def set_gradients(params, t):
    first = 0
    for p in params:
        i = torch.arange(first, first + p.numel(), dtype=torch.float64).reshape(p.shape)
        p.grad = (0.5 + 0.1 * i) * p.detach() + 0.5 * torch.sin(0.3 * t + i)
        first += p.numel()


def parameters():
    a = torch.tensor([math.cos(0.7 * i) for i in range(6)], dtype=torch.float64).reshape(3, 2)
    b = torch.tensor([math.cos(0.7 * i) for i in range(6, 9)], dtype=torch.float64)
    return [a.requires_grad_(), b.requires_grad_()]


def trace(make):
    params = parameters()
    optimizer = make(params)
    rows = []
    for t in range(1, STEPS + 1):
        set_gradients(params, t)
        optimizer.step()
        if t % EVERY == 0:
            rows.append(values(params))
    return rows


def optimizers():
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    return {
        "sgd": lambda p: sgd(p, lr=0.05),
        "sgd_weight_decay": lambda p: sgd(p, lr=0.05, weight_decay=0.1),
        "sgd_momentum": lambda p: sgd(p, lr=0.02, momentum=0.9, dampening=0.3),
        "sgd_nesterov": lambda p: sgd(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01),
        "sgd_maximize": lambda p: sgd(p, lr=0.01, momentum=0.5, maximize=True),
        "adam": lambda p: adam(p, lr=0.03),
        "adam_weight_decay": lambda p: adam(p, lr=0.03, betas=(0.8, 0.99), weight_decay=0.1),
        "adam_amsgrad": lambda p: adam(p, lr=0.03, betas=(0.9, 0.7), amsgrad=True),
        "adamw": lambda p: adamw(p, lr=0.03, betas=(0.9, 0.95), weight_decay=0.1),
        "adamw_defaults": lambda p: adamw(p),
        "adamw_amsgrad_maximize": lambda p: adamw(p, lr=0.01, amsgrad=True, maximize=True),
        "adamw_two_groups": lambda p: adamw(
            [{"params": p[:1], "weight_decay": 0.2}, {"params": p[1:], "weight_decay": 0.0, "lr": 0.1}],
            lr=0.02,
        ),
    }


def clip(**how):
    i = torch.arange(11, dtype=torch.float64)
    params = [torch.zeros(n, dtype=torch.float64, requires_grad=True) for n in (6, 1, 4)]
    for p, grad in zip(params, (2 * torch.sin(1.3 * i)).split([6, 1, 4])):
        p.grad = grad.clone()
    row = {"grads": [p.grad.tolist() for p in params]}
    if "value" in how:
        torch.nn.utils.clip_grad_value_(params, how["value"])
        return row | how | {"clipped": [p.grad.tolist() for p in params]}
    norm = torch.nn.utils.clip_grad_norm_(params, how["max_norm"], float(how["norm_type"]))
    return row | how | {"total_norm": norm.item(), "clipped": [p.grad.tolist() for p in params]}


def clips():
    rows = [clip(max_norm=m, norm_type=p) for m in (0.5, 100.0) for p in (1, 2, 3, 0.5, "inf")]
    return rows + [clip(value=0.7), clip(value=5.0)]


def main():
    record = {
        "source": f"torch {torch.__version__}",
        "every": EVERY,
        "optimizers": {name: trace(make) for name, make in optimizers().items()},
        "clip": clips(),
    }
    text = json.dumps(record, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"')
    pathlib.Path(__file__).with_name("optim.json").write_text(text + "\n")


main()
