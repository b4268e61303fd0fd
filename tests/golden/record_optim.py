"""Records PyTorch's optimizers and gradient clipping, for tests/optim: writes optim.json.

The parameters have the shapes a = (3, 2) and b = (3,). Element i of the nine starts at cos(0.7 i),
and its gradient in step t (from 1) is (0.5 + 0.1 i) p + 0.5 sin(0.3 t + i). All values are float64,
including the scalars of optimizers.

PyTorch has no Lion, LAMB and LARS. The classes below follow Program 1 of arXiv:2302.06675, Algorithm 2
of arXiv:1904.00962 and Algorithm 1 of arXiv:1708.03888. Muon has only the parameter a, because it
optimizes matrices. The schedule-free optimizers are those of the package schedulefree 1.4.1.
"""

import json
import math
import pathlib

import schedulefree
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


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                g = -p.grad if group["maximize"] else p.grad
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                p.mul_(1 - lr * group["weight_decay"])
                p.sub_(lr * (beta1 * m + (1 - beta1) * g).sign())
                m.copy_(beta2 * m + (1 - beta2) * g)


def ratio(above, below, value):
    """Returns the value if both norms are positive, else 1."""
    return value if above > 0 and below > 0 else 1.0


class LAMB(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, maximize=False):
        super().__init__(
            params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)
        )

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                g = -p.grad if group["maximize"] else p.grad
                state = self.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                t, m, v = state["step"].item(), state["exp_avg"], state["exp_avg_sq"]
                m.copy_(beta1 * m + (1 - beta1) * g)
                v.copy_(beta2 * v + (1 - beta2) * g * g)
                r = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + group["eps"])
                u = r + group["weight_decay"] * p
                p.sub_(group["lr"] * ratio(p.norm(), u.norm(), p.norm() / u.norm()) * u)


class LARS(torch.optim.Optimizer):
    def __init__(
        self, params, lr=1e-3, momentum=0.9, weight_decay=0.0, trust_coefficient=1e-3, eps=1e-8,
        maximize=False,
    ):
        options = dict(lr=lr, momentum=momentum, weight_decay=weight_decay)
        options |= dict(trust_coefficient=trust_coefficient, eps=eps, maximize=maximize)
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            decay = group["weight_decay"]
            for p in group["params"]:
                g = -p.grad if group["maximize"] else p.grad
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                x, n = p.norm(), g.norm()
                local = ratio(x, n, group["trust_coefficient"] * x / (n + decay * x + group["eps"]))
                v = state["momentum_buffer"]
                v.copy_(group["momentum"] * v + group["lr"] * local * (g + decay * p))
                p.sub_(v)


def optimizers():
    muon = torch.optim.Muon
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    rmsprop, adagrad, adadelta = torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta
    adamax, nadam, radam = torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam
    rprop, asgd, adafactor = torch.optim.Rprop, torch.optim.ASGD, torch.optim.Adafactor
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
        "rmsprop": lambda p: rmsprop(p),
        "rmsprop_weight_decay": lambda p: rmsprop(p, lr=0.02, alpha=0.9, eps=1e-3, weight_decay=0.1),
        "rmsprop_momentum": lambda p: rmsprop(p, lr=0.01, momentum=0.8),
        "rmsprop_centered": lambda p: rmsprop(p, lr=0.02, alpha=0.95, centered=True),
        "rmsprop_centered_momentum": lambda p: rmsprop(
            p, lr=0.005, momentum=0.9, centered=True, weight_decay=0.05, maximize=True
        ),
        "adagrad": lambda p: adagrad(p),
        "adagrad_decays": lambda p: adagrad(
            p, lr=0.1, lr_decay=0.05, weight_decay=0.1, initial_accumulator_value=0.3, eps=1e-4
        ),
        "adagrad_maximize": lambda p: adagrad(p, lr=0.03, maximize=True),
        "adadelta": lambda p: adadelta(p),
        "adadelta_weight_decay": lambda p: adadelta(p, lr=2.0, rho=0.8, eps=1e-3, weight_decay=0.1),
        "adadelta_maximize": lambda p: adadelta(p, lr=0.5, maximize=True),
        "adamax": lambda p: adamax(p, lr=0.02),
        "adamax_weight_decay": lambda p: adamax(
            p, lr=0.03, betas=(0.8, 0.9), eps=1e-2, weight_decay=0.1, maximize=True
        ),
        "nadam": lambda p: nadam(p, lr=0.02),
        "nadam_weight_decay": lambda p: nadam(p, lr=0.03, betas=(0.8, 0.99), weight_decay=0.1),
        "nadam_decoupled": lambda p: nadam(
            p, lr=0.02, weight_decay=0.2, momentum_decay=0.1, decoupled_weight_decay=True, maximize=True
        ),
        "radam": lambda p: radam(p, lr=0.03),
        "radam_weight_decay": lambda p: radam(p, lr=0.03, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1),
        "radam_decoupled": lambda p: radam(
            p, lr=0.02, weight_decay=0.2, decoupled_weight_decay=True, maximize=True
        ),
        "lion": lambda p: Lion(p, lr=0.02),
        "lion_weight_decay": lambda p: Lion(p, lr=0.01, betas=(0.8, 0.9), weight_decay=0.3),
        "lion_maximize": lambda p: Lion(p, lr=0.01, maximize=True),
        "muon": lambda p: muon(p[:1], lr=0.02),
        "muon_rms": lambda p: muon(
            p[:1], lr=0.05, weight_decay=0.2, momentum=0.8, nesterov=False, ns_steps=3,
            adjust_lr_fn="match_rms_adamw",
        ),
        "muon_spectral": lambda p: muon(
            p[:1], lr=0.05, ns_coefficients=(2.0, -1.5, 0.5), adjust_lr_fn="spectral_unclamped"
        ),
        "lamb": lambda p: LAMB(p, lr=0.02),
        "lamb_weight_decay": lambda p: LAMB(
            p, lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.2, maximize=True
        ),
        "lars": lambda p: LARS(p, lr=2.0),
        "lars_weight_decay": lambda p: LARS(
            p, lr=0.3, momentum=0.5, weight_decay=0.1, trust_coefficient=0.1, eps=1e-2, maximize=True
        ),
        "rprop": lambda p: rprop(p),
        "rprop_etas": lambda p: rprop(p, lr=0.05, etas=(0.3, 1.5), step_sizes=(0.01, 0.08)),
        "rprop_maximize": lambda p: rprop(p, lr=0.001, maximize=True),
        "asgd": lambda p: asgd(p, lr=0.05),
        "asgd_averages": lambda p: asgd(p, lr=0.1, lambd=0.1, alpha=0.6, t0=10.0, weight_decay=0.1),
        "asgd_maximize": lambda p: asgd(p, lr=0.01, maximize=True),
        "adafactor": lambda p: adafactor(p),
        "adafactor_options": lambda p: adafactor(
            p, lr=0.1, beta2_decay=-0.6, eps=(0.5, 0.8), d=1.2, weight_decay=0.1, maximize=True
        ),
        "rmsprop_two_groups": lambda p: rmsprop(
            [{"params": p[:1], "momentum": 0.5}, {"params": p[1:], "centered": True, "lr": 0.03}]
        ),
    }


def schedule_free():
    adamw, sgd = schedulefree.AdamWScheduleFree, schedulefree.SGDScheduleFree
    return {
        "adamw": lambda p: adamw(p, lr=0.02),
        "adamw_options": lambda p: adamw(
            p, lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1, warmup_steps=7, r=1.0,
            weight_lr_power=1.0,
        ),
        "sgd": lambda p: sgd(p, lr=0.1),
        "sgd_options": lambda p: sgd(
            p, lr=0.2, momentum=0.7, weight_decay=0.1, warmup_steps=4, r=0.5, weight_lr_power=1.0
        ),
    }


def trace_schedule_free(make):
    """Returns the values of training and of evaluation after each EVERY steps."""
    params = parameters()
    optimizer = make(params)
    optimizer.train()
    rows = []
    for t in range(1, STEPS + 1):
        set_gradients(params, t)
        optimizer.step()
        if t % EVERY == 0:
            row = {"train": values(params)}
            optimizer.eval()
            row["eval"] = values(params)
            optimizer.train()
            rows.append(row)
    group = {k: v for k, v in optimizer.state_dict()["param_groups"][0].items() if k != "params"}
    return {"rows": rows, "group": group}


def rosenbrock(params):
    x = torch.cat([p.flatten() for p in params])
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def lbfgs():
    cls = torch.optim.LBFGS
    return {
        "fixed_step": (10, lambda p: cls(p, lr=0.1, max_iter=4, history_size=3)),
        "strong_wolfe": (10, lambda p: cls(p, max_iter=6, line_search_fn="strong_wolfe")),
        "maximize": (5, lambda p: cls(p, max_iter=5, maximize=True, line_search_fn="strong_wolfe")),
    }


def trace_lbfgs(name, steps, make):
    params = parameters()
    optimizer = make(params)
    rows = []

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(params)
        loss = -loss if name == "maximize" else loss
        loss.backward()
        return loss

    for _ in range(steps):
        loss = optimizer.step(closure)
        state = optimizer.state_dict()["state"][0]
        rows.append({"loss": loss.item(), "values": values(params),
                     "func_evals": state["func_evals"], "n_iter": state["n_iter"]})
    return rows


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


# Returns the states of the parameters after the steps of the first recorded row.
def states(make):
    params = parameters()
    optimizer = make(params)
    for t in range(1, EVERY + 1):
        set_gradients(params, t)
        optimizer.step()
    saved = optimizer.state_dict()["state"]
    return [
        {
            name: {"shape": list(value.shape), "values": value.flatten().tolist()}
            for name, value in saved.get(i, {}).items()
            if value is not None
        }
        for i in range(2)
    ]


def main():
    torch.set_default_dtype(torch.float64)
    record = {
        "source": f"torch {torch.__version__}",
        "every": EVERY,
        "optimizers": {name: trace(make) for name, make in optimizers().items()},
        "states": {name: states(make) for name, make in optimizers().items()},
        "groups": {
            name: make(parameters()).state_dict()["param_groups"]
            for name, make in optimizers().items()
        },
        "schedule_free": {
            name: trace_schedule_free(make) for name, make in schedule_free().items()
        },
        "lbfgs": {name: trace_lbfgs(name, *row) for name, row in lbfgs().items()},
        "clip": clips(),
    }
    text = json.dumps(record, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"')
    pathlib.Path(__file__).with_name("optim.json").write_text(text + "\n")


main()
