"""Records LOMO and AdaLomo of the package lomo-optim 0.1.1, for tests/optim: writes lomo.json.

The parameters have the shapes a = (3, 2) and b = (3,); element i of the nine starts at cos(0.7 i).
The loss of step t (from 1) is the sum of (0.25 + 0.05 i) p^2 + 0.5 sin(0.3 t + i) p, in float32.
The package requires a GPU and transformers; stand-ins replace them on the CPU.
"""

import json
import math
import pathlib
import sys
import types

import torch

STEPS = 20
EVERY = 5


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


logging = types.SimpleNamespace(get_logger=lambda *_: types.SimpleNamespace(warning=print))
stand_in("transformers")
stand_in("transformers.integrations")
stand_in("transformers.integrations.deepspeed", is_deepspeed_zero3_enabled=lambda: False)
stand_in("transformers.utils", logging=logging)
torch.Tensor.cuda = lambda self: self
torch.distributed.get_rank = lambda: 0
torch.distributed.get_world_size = lambda: 1
torch.cuda.set_device = lambda _: None

from lomo_optim import AdaLomo, Lomo  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        start = [math.cos(0.7 * i) for i in range(9)]
        self.a = torch.nn.Parameter(torch.tensor(start[:6]).reshape(3, 2))
        self.b = torch.nn.Parameter(torch.tensor(start[6:]))

    def loss(self, t):
        p = torch.cat([self.a.flatten(), self.b])
        i = torch.arange(9, dtype=torch.float32)
        return ((0.25 + 0.05 * i) * p * p + 0.5 * torch.sin(0.3 * t + i) * p).sum()


def trace(make):
    model = Model()
    optimizer = make(model)
    rows = []
    for t in range(1, STEPS + 1):
        if optimizer.clip_grad_norm:
            optimizer.grad_norm(model.loss(t))
        optimizer.fused_backward(model.loss(t), lr=0.05)
        if t % EVERY == 0:
            rows.append(torch.cat([model.a.flatten(), model.b]).tolist())
    return rows


cases = {
    "lomo": lambda m: Lomo(m),
    "lomo_norm": lambda m: Lomo(m, clip_grad_norm=0.3),
    "lomo_value": lambda m: Lomo(m, clip_grad_value=0.1),
    "lomo_decay": lambda m: Lomo(m, weight_decay=0.1),
    "adalomo": lambda m: AdaLomo(m),
    "adalomo_norm": lambda m: AdaLomo(m, clip_grad_norm=0.3, clip_threshold=0.5),
    "adalomo_value_decay": lambda m: AdaLomo(
        m, clip_grad_value=0.2, weight_decay=0.1, decay_rate=-0.5, eps=(1e-6, 0.1)
    ),
}
result = {"steps": STEPS, "every": EVERY, "traces": {name: trace(c) for name, c in cases.items()}}
pathlib.Path(__file__).with_name("lomo.json").write_text(json.dumps(result))
