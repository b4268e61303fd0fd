"""Records what PyTorch's optimizers and schedules do, for tests/optim: writes optim.json beside it.

Parameters are a = (3, 2) and b = (3,), element i of the nine starts at cos(0.7 i), and its gradient
in step t (from 1) is (0.5 + 0.1 i) p + 0.5 sin(0.3 t + i): no autograd needed. All in float64.
"""

import json
import math
import pathlib

import torch
from transformers import optimization as hf

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


def schedule(make, steps=60, momentum=None):
    params = parameters()
    optimizer = torch.optim.AdamW([{"params": params[:1]}, {"params": params[1:], "lr": 0.5}], lr=2.0)
    scheduler = make(optimizer)
    rows = [[g["lr"] for g in optimizer.param_groups]]
    betas = [optimizer.param_groups[0]["betas"][0]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rows.append([g["lr"] for g in optimizer.param_groups])
        betas.append(optimizer.param_groups[0]["betas"][0])
    return {"lr": rows, "beta1": betas} if momentum else {"lr": rows}


def schedules():
    s = torch.optim.lr_scheduler
    return {
        "lambda": schedule(lambda o: s.LambdaLR(o, lambda k: 1 / (1 + 0.1 * k))),
        "lambda_per_group": schedule(lambda o: s.LambdaLR(o, [lambda k: 0.9**k, lambda k: 1 - k / 100])),
        "step": schedule(lambda o: s.StepLR(o, 7, gamma=0.5)),
        "multistep": schedule(lambda o: s.MultiStepLR(o, [5, 20, 21], gamma=0.3)),
        "exponential": schedule(lambda o: s.ExponentialLR(o, 0.95)),
        "constant_factor": schedule(lambda o: s.ConstantLR(o)),
        "linear_factor": schedule(lambda o: s.LinearLR(o, 0.25, 0.75, 10)),
        "polynomial": schedule(lambda o: s.PolynomialLR(o, 40, 2.0)),
        "warm_restarts": schedule(lambda o: s.CosineAnnealingWarmRestarts(o, 8, 2, eta_min=0.05)),
        "cosine_annealing": schedule(lambda o: s.CosineAnnealingLR(o, 45, eta_min=0.05)),
        "constant": schedule(lambda o: hf.get_constant_schedule(o)),
        "constant_with_warmup": schedule(lambda o: hf.get_constant_schedule_with_warmup(o, 7)),
        "linear_with_warmup": schedule(lambda o: hf.get_linear_schedule_with_warmup(o, 7, 50)),
        "linear_without_warmup": schedule(lambda o: hf.get_linear_schedule_with_warmup(o, 0, 50)),
        "cosine_with_warmup": schedule(lambda o: hf.get_cosine_schedule_with_warmup(o, 7, 60)),
        "cosine_two_cycles": schedule(lambda o: hf.get_cosine_schedule_with_warmup(o, 7, 60, 1.5)),
        "cosine_with_min_lr": schedule(
            lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup(o, 7, 60, min_lr_rate=0.1)
        ),
        "onecycle_cos": schedule(lambda o: s.OneCycleLR(o, 1.0, total_steps=61), momentum=True),
        "onecycle_linear": schedule(
            lambda o: s.OneCycleLR(
                o, [1.0, 3.0], total_steps=61, pct_start=0.2, anneal_strategy="linear",
                cycle_momentum=False, div_factor=10, final_div_factor=100,
            )
        ),
        "onecycle_three_phase": schedule(
            lambda o: s.OneCycleLR(o, 1.0, total_steps=61, three_phase=True), momentum=True
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
        "schedules": schedules(),
        "clip": clips(),
    }
    text = json.dumps(record, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"')
    pathlib.Path(__file__).with_name("optim.json").write_text(text + "\n")


main()
