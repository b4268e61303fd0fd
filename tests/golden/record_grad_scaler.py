"""Records the behavior of torch.amp.GradScaler, for tests/optim: writes grad_scaler.json.

Each optimizer is SGD with momentum 0.9 and learning rate 0.1 on one float32 parameter with four
values; the parameter of optimizer k is cos(0.7 i + k). Its loss in step t (from 0) is the sum of
its parameter times sin(0.3 t + i + k). In some cases the factor for i = 1 is infinite.
"""

import json
import math
import pathlib

import torch

STEPS = 24


def factors(case, t, k):
    row = [math.sin(0.3 * t + i + k) for i in range(4)]
    if [t, k] in case["infinite"]:
        row[1] = math.inf
    return torch.tensor(row)


def trace(case):
    scaler = torch.amp.GradScaler("cpu", **case["options"])
    params = [
        torch.tensor([math.cos(0.7 * i + k) for i in range(4)], requires_grad=True)
        for k in range(case["optimizers"])
    ]
    optimizers = [torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in params]
    rows = []
    for t in range(STEPS):
        row = {"scale_used": scaler.get_scale()}
        for k, (p, optimizer) in enumerate(zip(params, optimizers)):
            optimizer.zero_grad()
            scaler.scale((p * factors(case, t, k)).sum()).backward()
        before = [p.tolist() for p in params]
        if case["max_norm"] is not None:
            row["norms"] = []
            for p, optimizer in zip(params, optimizers):
                scaler.unscale_(optimizer)
                norm = torch.nn.utils.clip_grad_norm_([p], case["max_norm"]).item()
                row["norms"].append(norm if math.isfinite(norm) else None)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        row["values"] = [p.tolist() for p in params]
        row["skipped"] = [[t, k] in case["infinite"] for k in range(case["optimizers"])]
        for k, skipped in enumerate(row["skipped"]):
            assert (row["values"][k] == before[k]) == skipped
        row["state"] = scaler.state_dict()
        rows.append(row)
    return rows


CASES = [
    {"options": {}, "optimizers": 1, "max_norm": None, "infinite": [[3, 0], [4, 0]]},
    {
        "options": {"init_scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.1, "growth_interval": 2},
        "optimizers": 1,
        "max_norm": 0.5,
        "infinite": [[0, 0], [5, 0], [6, 0], [13, 0]],
    },
    {
        "options": {"init_scale": 1024.0, "growth_interval": 4},
        "optimizers": 2,
        "max_norm": None,
        "infinite": [[2, 0], [7, 1], [15, 0], [15, 1]],
    },
    {
        "options": {"init_scale": 2.0**126, "growth_factor": 1.7, "growth_interval": 1},
        "optimizers": 2,
        "max_norm": 1.0,
        "infinite": [[9, 1]],
    },
    {"options": {"enabled": False}, "optimizers": 1, "max_norm": 1.0, "infinite": []},
]


def main():
    record = {
        "source": f"torch {torch.__version__}",
        "cases": [case | {"trace": trace(case)} for case in CASES],
    }
    text = json.dumps(record, separators=(",", ":")).replace('},{', '},\n{')
    pathlib.Path(__file__).with_name("grad_scaler.json").write_text(text + "\n")


main()
