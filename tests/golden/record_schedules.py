"""Records PyTorch's and Transformers' learning rate schedules, for tests/optim: writes schedules.json.

A case has an optimizer ("sgd" with momentum 0.5, or "adamw") with one group per initial rate, and a
schedule: the name of its class or {"get_scheduler": name}, with the names of arguments as keys.
"lr" and "momentum" (Adam's first beta) are the values of the groups at construction and after each
step. Before the steps in "set", the groups get other rates. If there are "metrics", step t gets
"metrics"[t]. "state" is the schedule's state_dict after "state_at" steps; values that JSON lacks are
strings, and values that only a pickle can contain are left out.
"""

import json
import math
import pathlib
import warnings

import torch
import torch.optim.lr_scheduler as pt
import transformers
from torch.optim.swa_utils import SWALR

warnings.filterwarnings("ignore")

FUNCTIONS = {
    "hyperbola": lambda t: 1 / (1 + 0.1 * t),
    "power": lambda t: 0.9**t,
    "falling": lambda t: 1 - t / 100,
    "wave": lambda t: 1 + 0.2 * math.sin(t),
}
CLASSES = {name: getattr(pt, name) for name in pt.__all__} | {"SWALR": SWALR}


def functions(names):
    return [FUNCTIONS[n] for n in names] if isinstance(names, list) else FUNCTIONS[names]


def build(spec, optimizer):
    spec = dict(spec)
    if "get_scheduler" in spec:
        return transformers.get_scheduler(spec.pop("get_scheduler"), optimizer, **spec)
    made = CLASSES[spec.pop("class")]
    for key in ("lr_lambda", "scale_fn"):
        if key in spec:
            spec[key] = functions(spec[key])
    if "schedulers" in spec:
        spec["schedulers"] = [build(part, optimizer) for part in spec["schedulers"]]
        if made is pt.ChainedScheduler:
            return made(**spec)
    return made(optimizer, **spec)


def make_optimizer(case):
    groups = [
        {"params": [torch.zeros(2, requires_grad=True)], "lr": lr} for lr in case["rates"]
    ]
    if case["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=case["rates"][0], momentum=0.5)
    return torch.optim.AdamW(groups, lr=case["rates"][0])


def rates(optimizer):
    return [g["lr"] for g in optimizer.param_groups]


def momenta(optimizer):
    return [g["momentum"] if "momentum" in g else g["betas"][0] for g in optimizer.param_groups]


def plain(value):
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items() if not callable(v)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    return value


def record(case):
    optimizer = make_optimizer(case)
    schedule = build(case["schedule"], optimizer)
    case["lr"], case["momentum"] = [rates(optimizer)], [momenta(optimizer)]
    for t in range(case["steps"]):
        for group, lr in zip(optimizer.param_groups, case.get("set", {}).get(str(t), [])):
            group["lr"] = lr
        if t == case["state_at"]:
            case["state"] = plain(schedule.state_dict())
        if "metrics" in case:
            schedule.step(float(case["metrics"][t]))
        else:
            schedule.step()
        case["lr"].append(rates(optimizer))
        case["momentum"].append(momenta(optimizer))
        assert list(schedule.get_last_lr()) == rates(optimizer)
    if all(m == case["momentum"][0] for m in case["momentum"]):
        case["momentum"] = case["momentum"][:1]
    return case


# The loss falls, stalls, is not a number, rises and falls again.
LOSSES = [3, 2.5, 2.1, 2.1, 2.0999, 2.0999, 2.2, "NaN", 2.3, 2.0998, 1.9, 1.9, 1.9, 1.9, 1.9, 1.9]
LOSSES += [1.5 + 0.1 * math.sin(t) for t in range(14)] + [0.5, 0.4999999, 0.3, 0.29, 0.2, 0.1, 0, -0.1, -0.2, -3]


def schedules():
    def of(name, **arguments):
        return {"class": name} | arguments

    def named(name, warmup=None, training=None, **kwargs):
        spec = {"get_scheduler": name, "num_warmup_steps": warmup, "num_training_steps": training}
        return spec | ({"scheduler_specific_kwargs": kwargs} if kwargs else {})

    yield of("LambdaLR", lr_lambda="hyperbola")
    yield of("LambdaLR", lr_lambda=["power", "falling"])
    yield of("MultiplicativeLR", lr_lambda="wave")
    yield of("MultiplicativeLR", lr_lambda=["wave", "power"])
    yield of("StepLR", step_size=1)
    yield of("StepLR", step_size=7, gamma=0.5)
    yield of("MultiStepLR", milestones=[5, 20, 20, 21], gamma=0.3)
    yield of("MultiStepLR", milestones=[0, 9])
    yield of("ConstantLR")
    yield of("ConstantLR", factor=0.7, total_iters=12)
    yield of("LinearLR")
    yield of("LinearLR", start_factor=1.0, end_factor=0.1, total_iters=25)
    yield of("LinearLR", start_factor=0.2, end_factor=0.0, total_iters=9)
    yield of("ExponentialLR", gamma=0.93)
    yield of("PolynomialLR")
    yield of("PolynomialLR", total_iters=30, power=2.5)
    yield of("CosineAnnealingLR", T_max=1)
    yield of("CosineAnnealingLR", T_max=9, eta_min=0.05)
    yield of("CosineAnnealingLR", T_max=60)
    yield of("CosineAnnealingWarmRestarts", T_0=5)
    yield of("CosineAnnealingWarmRestarts", T_0=3, T_mult=2, eta_min=0.01)
    yield of("SWALR", swa_lr=0.05)
    yield of("SWALR", swa_lr=[0.05, 3.0], anneal_epochs=6, anneal_strategy="linear")
    yield of("SWALR", swa_lr=0.05, anneal_epochs=0)
    yield of("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=4)
    yield of("CyclicLR", base_lr=[0.1, 0.2], max_lr=[1.0, 3.0], step_size_up=3, step_size_down=5, mode="triangular2")
    yield of("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=5, mode="exp_range", gamma=0.97,
             base_momentum=[0.6, 0.7], max_momentum=[0.8, 0.9])
    yield of("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=5, cycle_momentum=False, scale_fn="power",
             scale_mode="iterations")
    yield of("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=5, scale_fn="hyperbola")
    yield of("OneCycleLR", max_lr=1.0, total_steps=60)
    yield of("OneCycleLR", max_lr=[1.0, 3.0], total_steps=48, pct_start=0.2, anneal_strategy="linear",
             cycle_momentum=False, div_factor=10, final_div_factor=100)
    yield of("OneCycleLR", max_lr=1.0, total_steps=50, three_phase=True, base_momentum=[0.5, 0.6],
             max_momentum=[0.7, 0.8])
    yield of("SequentialLR", milestones=[8], schedulers=[
        of("LinearLR", start_factor=0.1, total_iters=8), of("CosineAnnealingLR", T_max=24, eta_min=0.01)])
    yield of("SequentialLR", milestones=[5, 5, 20], schedulers=[
        of("ConstantLR", factor=0.1, total_iters=3), of("StepLR", step_size=2), of("ExponentialLR", gamma=0.9),
        of("PolynomialLR", total_iters=10)])
    yield of("SequentialLR", milestones=[6, 15, 24], schedulers=[
        of("LambdaLR", lr_lambda="power"), of("MultiplicativeLR", lr_lambda="wave"),
        of("MultiStepLR", milestones=[2, 4]), of("CosineAnnealingWarmRestarts", T_0=4)])
    yield of("SequentialLR", milestones=[4, 12], schedulers=[
        named("constant_with_warmup", 4), of("OneCycleLR", max_lr=1.0, total_steps=8, pct_start=0.5),
        of("SWALR", swa_lr=0.02, anneal_epochs=5)])
    yield of("SequentialLR", milestones=[7], schedulers=[
        of("ExponentialLR", gamma=0.9), of("CyclicLR", base_lr=0.1, max_lr=1.0, step_size_up=4)])
    yield of("SequentialLR", milestones=[], schedulers=[of("LinearLR")])
    yield of("ChainedScheduler", schedulers=[of("ConstantLR", factor=0.1, total_iters=4), of("ExponentialLR", gamma=0.9)])
    yield of("ChainedScheduler", schedulers=[
        of("LinearLR", start_factor=0.5), of("StepLR", step_size=6), of("MultiplicativeLR", lr_lambda="wave"),
        of("PolynomialLR", total_iters=20)])
    yield of("ChainedScheduler", schedulers=[
        of("LinearLR", start_factor=0.25, total_iters=6),
        of("SequentialLR", milestones=[10], schedulers=[
            of("ConstantLR", factor=1.0), of("CosineAnnealingLR", T_max=20, eta_min=0.02)])])
    yield of("ChainedScheduler", schedulers=[
        of("CosineAnnealingLR", T_max=30), of("MultiStepLR", milestones=[10, 20], gamma=0.5)])
    for mode in ("min", "max"):
        for threshold_mode in ("rel", "abs"):
            yield of("ReduceLROnPlateau", mode=mode, threshold_mode=threshold_mode, patience=2, factor=0.5,
                     threshold=0.01)
    yield of("ReduceLROnPlateau")
    yield of("ReduceLROnPlateau", patience=0, cooldown=3, min_lr=[0.05, 0.3], factor=0.6)
    yield of("ReduceLROnPlateau", patience=1, eps=0.2, threshold=0.0)

    yield named("linear", 7, 30)
    yield named("linear", 0, 30)
    yield named("linear", 12, 10)
    yield named("cosine", 7, 35)
    yield named("cosine", 3, 35, num_cycles=1.5)
    yield named("cosine_with_restarts", 4, 35)
    yield named("cosine_with_restarts", 4, 35, num_cycles=3)
    yield named("polynomial", 5, 30)
    yield named("polynomial", 5, 30, lr_end=0.01, power=2.0)
    yield named("constant")
    yield named("constant_with_warmup", 6)
    yield named("constant_with_warmup", 0)
    yield named("inverse_sqrt", 5)
    yield named("inverse_sqrt", 0)
    yield named("inverse_sqrt", 5, timescale=20)
    yield named("reduce_lr_on_plateau", mode="max", patience=3, factor=0.25)
    yield named("cosine_with_min_lr", 5, 30, min_lr=0.02)
    yield named("cosine_with_min_lr", 5, 30, min_lr_rate=0.3, num_cycles=1.0)
    yield named("cosine_warmup_with_min_lr", 5, 30, min_lr=0.02)
    yield named("cosine_warmup_with_min_lr", 5, 30, min_lr_rate=0.3, warmup_lr_rate=0.2)
    yield named("cosine_warmup_with_min_lr", 1, 30, min_lr_rate=0.0, warmup_lr_rate=0.2, num_cycles=0.75)
    for shape in ("linear", "cosine", "1-sqrt"):
        yield named("warmup_stable_decay", 6, 36, num_decay_steps=12, warmup_type=shape, decay_type=shape)
    yield named("warmup_stable_decay", 4, None, num_decay_steps=9, num_stable_steps=11, min_lr_ratio=0.1,
                num_cycles=1.5)
    yield named("greedy", patience=2, factor=0.5, max_lr=[2.5, 4.0], min_lr=0.2)
    yield named("greedy", mode="max", threshold_mode="rel", patience=1, factor=0.6, min_lr=0.3, max_lr=3.0,
                cooldown=2, warmup=1, reset_start=3)
    yield named("greedy", patience=1, smooth=True, window_size=4, factor=0.8)


def cases():
    for i, spec in enumerate(schedules()):
        case = {
            "schedule": spec,
            "optimizer": ("sgd", "adamw")[i % 2],
            "rates": [2.0, 0.5],
            "steps": 40,
            "state_at": 13,
        }
        name = spec.get("class", spec.get("get_scheduler"))
        if name in ("ReduceLROnPlateau", "reduce_lr_on_plateau", "greedy"):
            # A mean that includes NaN stays NaN.
            case["metrics"] = [2.2 if x == "NaN" else x for x in LOSSES] if "smooth" in str(spec) else LOSSES
        yield record(case)
        if name in ("ExponentialLR", "CosineAnnealingLR", "LinearLR", "SWALR", "CyclicLR", "ChainedScheduler",
                    "ReduceLROnPlateau"):
            other = {"set": {"3": [0.7, 0.9], "16": [0.25, 1.5]}, "rates": [1.0]}
            if not any(isinstance(v, list) for k, v in spec.items() if k != "schedulers"):
                yield record({k: case[k] for k in case if k not in ("lr", "momentum", "state")} | other)


def main():
    rows = []
    for case in cases():
        rows.append(json.dumps(case, separators=(",", ":"), allow_nan=False))
    source = f"torch {torch.__version__}, transformers {transformers.__version__}"
    text = '{"source":' + json.dumps(source) + ',"cases":[' + ",\n".join(rows) + "]}\n"
    pathlib.Path(__file__).with_name("schedules.json").write_text(text)


main()
