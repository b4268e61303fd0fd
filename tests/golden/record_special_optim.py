"""Records optimizers that PyTorch lacks or that need other gradients: writes special_optim.json.

The parameters and gradients are those of record_optim.py, all in float64, except for
    sparse: the gradient of a = (5, 3) and b = (4,) has the rows i with (i + t) % 3 = 0 (a) and
        (i + t) % 2 = 0 (b), and is a sparse tensor for torch.optim.SparseAdam;
    adamw_8bit: one parameter (65, 64) starts at cos(0.7 i) and has the gradient
        (0.5 + 0.1 (i % 5)) p + 0.5 sin(0.3 t + i) 10^-(i % 4). Every 41st element and the sum of
        squares are recorded.

Prodigy is that of the package prodigyopt 1.1.2. Lookahead follows Algorithm 1 of arXiv:1907.08610.
AdamW8bit follows section 2 of arXiv:2110.02861: dynamic tree quantization of blocks of 256 elements, a
step in full precision, and rounding to the nearest number. torch.optim.AdamW is the step of smaller
parameters.
"""

import json
import math
import pathlib

import prodigyopt
import torch

STEPS = 50
EVERY = 5
BLOCK = 256


def wave(shape, first=0):
    n = math.prod(shape)
    values = [math.cos(0.7 * i) for i in range(first, first + n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape).requires_grad_()


def parameters():
    return [wave((3, 2)), wave((3,), 6)]


def values(params):
    return torch.cat([p.detach().flatten() for p in params]).tolist()


def set_gradients(params, t):
    first = 0
    for p in params:
        i = torch.arange(first, first + p.numel(), dtype=torch.float64).reshape(p.shape)
        p.grad = (0.5 + 0.1 * i) * p.detach() + 0.5 * torch.sin(0.3 * t + i)
        first += p.numel()


def states(optimizer, params):
    return [
        {
            key: {"shape": list(value.shape), "values": value.flatten().tolist()}
            for key, value in ((k, torch.as_tensor(v)) for k, v in optimizer.state[p].items())
        }
        for p in params
    ]


def trace(make, params=parameters, gradients=set_gradients, record=values):
    """Returns the values after each EVERY steps, and the final state and options of the groups."""
    params = params()
    optimizer = make(params)
    rows = []
    for t in range(1, STEPS + 1):
        gradients(params, t)
        optimizer.step()
        if t % EVERY == 0:
            rows.append(record(params))
    options = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    for group in options:
        group.update({k: "Infinity" for k, v in group.items() if v == math.inf})
    return {"rows": rows, "states": states(optimizer, params), "groups": options}


def prodigy():
    cls = prodigyopt.Prodigy
    return {
        "prodigy": lambda p: cls(p),
        "prodigy_large_d0": lambda p: cls(p, d0=1e-2, use_bias_correction=True),
        "prodigy_options": lambda p: cls(
            p, lr=0.5, betas=(0.8, 0.95), beta3=0.9, eps=1e-6, weight_decay=0.1, use_bias_correction=True,
            safeguard_warmup=True, d0=1e-3, d_coef=0.7, growth_rate=1.5, slice_p=2,
        ),
        "prodigy_coupled": lambda p: cls(
            p, betas=(0.0, 0.99), weight_decay=0.05, decouple=False, d0=1e-2
        ),
        "prodigy_two_groups": lambda p: cls(
            [{"params": p[:1], "weight_decay": 0.1}, {"params": p[1:], "lr": 0.0}], d0=1e-2
        ),
    }


class Lookahead:
    def __init__(self, inner, k=5, alpha=0.5):
        self.inner, self.k, self.alpha, self.counter = inner, k, alpha, 0
        self.param_groups, self.state = inner.param_groups, inner.state
        self.slow = {p: p.detach().clone() for g in inner.param_groups for p in g["params"]}

    @torch.no_grad()
    def step(self):
        self.inner.step()
        self.counter += 1
        if self.counter % self.k == 0:
            for p, slow in self.slow.items():
                slow.add_(p - slow, alpha=self.alpha)
                p.copy_(slow)
        for p, slow in self.slow.items():
            self.state[p]["slow_params"] = slow


def lookahead():
    adamw, sgd, rmsprop = torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop
    return {
        "lookahead_adamw": lambda p: Lookahead(adamw(p, lr=0.03)),
        "lookahead_sgd": lambda p: Lookahead(sgd(p, lr=0.05), k=3, alpha=0.8),
        "lookahead_rmsprop": lambda p: Lookahead(rmsprop(p, lr=0.01, momentum=0.5), k=7, alpha=0.2),
    }


def set_sparse_gradients(params, t):
    set_gradients(params, t)
    for p, every in zip(params, (3, 2)):
        rows = torch.tensor([i for i in range(p.shape[0]) if (i + t) % every == 0])
        p.grad = torch.sparse_coo_tensor(rows[None], p.grad[rows], p.shape)


def sparse():
    cls = torch.optim.SparseAdam
    return {
        "sparse_adam": lambda p: cls(p, lr=0.03),
        "sparse_adam_options": lambda p: cls(p, lr=0.05, betas=(0.8, 0.9), eps=1e-3, maximize=True),
    }


def dynamic_code(signed):
    numbers = [0.0, 1.0]
    for e in range(7):
        parts = 2**e if signed else 2 ** (e + 1)
        for i in range(parts):
            number = 10.0 ** (e - 6) * (0.1 + 0.9 * (i + 0.5) / parts)
            numbers += [number, -number] if signed else [number]
    return torch.tensor(sorted(numbers), dtype=torch.float32).to(torch.float64)


class AdamW8bit(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                state = self.state[p]
                blocks = -(-p.numel() // BLOCK)
                if not state:
                    state["step"] = 0
                    for i in ("1", "2"):
                        state["state" + i] = torch.zeros(p.shape, dtype=torch.uint8)
                        state["absmax" + i] = torch.zeros(blocks, dtype=torch.float64)
                state["step"] += 1
                t, g = state["step"], p.grad.flatten()
                moments = []
                for i, signed, beta, new in (("1", True, beta1, g), ("2", False, beta2, g * g)):
                    code = dynamic_code(signed)
                    scale = state["absmax" + i].repeat_interleave(BLOCK)[: p.numel()]
                    moment = code[state["state" + i].flatten().long()] * scale
                    moment = moment * beta + new * (1 - beta)
                    padded = torch.nn.functional.pad(moment, (0, blocks * BLOCK - p.numel()))
                    padded = padded.reshape(blocks, BLOCK)
                    largest = padded.abs().amax(1)
                    nearest = torch.bucketize(padded / largest[:, None], (code[:-1] + code[1:]) / 2)
                    state["absmax" + i].copy_(largest)
                    state["state" + i].copy_(nearest.flatten()[: p.numel()].reshape(p.shape))
                    moments.append(moment.reshape(p.shape))
                m, v = moments
                size = v.sqrt() / math.sqrt(1 - beta2**t) + group["eps"]
                p.mul_(1 - lr * group["weight_decay"]).sub_(m / size * (lr / (1 - beta1**t)))


def set_large_gradients(params, t):
    for p in params:
        i = torch.arange(p.numel(), dtype=torch.float64).reshape(p.shape)
        noise = 0.5 * torch.sin(0.3 * t + i) * 10.0 ** -(i % 4)
        p.grad = (0.5 + 0.1 * (i % 5)) * p.detach() + noise


def some_values(params):
    x = params[0].detach().flatten()
    return x[::41].tolist() + [(x * x).sum().item()]


def adamw_8bit():
    rows = {}
    for name, options in {
        "adamw_8bit": dict(lr=0.02),
        "adamw_8bit_options": dict(lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.2),
    }.items():
        large = trace(
            lambda p: AdamW8bit(p, **options), lambda: [wave((65, 64))], set_large_gradients, some_values
        )
        codes = large.pop("states")[0]
        large["codes"] = {key: codes[key]["values"][::41] for key in ("state1", "state2")}
        large["absmax"] = {key: codes[key]["values"] for key in ("absmax1", "absmax2")}
        small = trace(lambda p: torch.optim.AdamW(p, **options))
        rows[name] = {"large": large, "small": small["rows"]}
    return rows


def main():
    torch.set_default_dtype(torch.float64)
    record = {
        "source": f"torch {torch.__version__}",
        "every": EVERY,
        "prodigy": {name: trace(make) for name, make in prodigy().items()},
        "lookahead": {name: trace(make) for name, make in lookahead().items()},
        "sparse": {
            name: trace(make, lambda: [wave((5, 3)), wave((4,), 15)], set_sparse_gradients)
            for name, make in sparse().items()
        },
        "code": {"signed": dynamic_code(True).tolist(), "unsigned": dynamic_code(False).tolist()},
        "adamw_8bit": adamw_8bit(),
    }
    text = json.dumps(record, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"')
    pathlib.Path(__file__).with_name("special_optim.json").write_text(text + "\n")


main()
