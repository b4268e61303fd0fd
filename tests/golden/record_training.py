"""Records training loops of Hugging Face Accelerate in one process, for tests/accel: writes
training.json, in the format of tests/vectors/training_trace.json.

The model y = a x + b starts with a = b = 0 in float64. Sample i has x = ((37 i) mod 17 - 8) / 8 and
y = 2 x + 3 + 0.1 sin(i). The loss is the mean squared error, the learning rate lr0 / (1 + 0.1 k).
There are two epochs without shuffling.
"""

import json
import math
import pathlib

import accelerate
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgdm": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01),
}


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.b = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        return self.a * x + self.b


def trace(case):
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=case["num_steps"])
    x = torch.tensor([((i * 37) % 17 - 8) / 8 for i in range(case["n"])], dtype=torch.float64)
    noise = torch.tensor([0.1 * math.sin(i) for i in range(case["n"])], dtype=torch.float64)
    data = torch.utils.data.TensorDataset(x, 2 * x + 3 + noise)
    model = Line()
    optimizer = OPTIMIZERS[case["optimizer"]](model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + 0.1 * k))
    loader = torch.utils.data.DataLoader(data, batch_size=case["batch_size"])
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    rows = []
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = ((model(x) - y) ** 2).mean()
                accelerator.backward(loss)
                norm = None
                if case["clip"] and accelerator.sync_gradients:
                    kind, limit = case["clip"]
                    if kind == "norm":
                        norm = accelerator.clip_grad_norm_(model.parameters(), limit).item()
                    else:
                        accelerator.clip_grad_value_(model.parameters(), limit)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            rows.append({"sync": accelerator.sync_gradients, "local_loss": [loss.item()],
                         "grad_norm": norm, "a": model.a.item(), "b": model.b.item(),
                         "lr": scheduler.get_last_lr()[0]})
    return rows


def main():
    cases = []
    for optimizer in OPTIMIZERS:
        for n, batch_size, num_steps, clip in [(24, 4, 1, None), (20, 2, 4, ["norm", 0.5]),
                                               (22, 4, 2, None), (20, 4, 3, ["value", 0.3])]:
            cases.append({"n": n, "batch_size": batch_size, "num_steps": num_steps,
                          "optimizer": optimizer, "clip": clip})
    for case in cases:
        case["trace"] = trace(case)
    lines = ",\n".join("  " + json.dumps(case, separators=(",", ":")) for case in cases)
    source = f"accelerate {accelerate.__version__}, torch {torch.__version__}"
    path = pathlib.Path(__file__).with_name("training.json")
    path.write_text('{\n "source": ' + json.dumps(source) + ',\n "cases": [\n' + lines + "\n ]\n}\n")


if __name__ == "__main__":
    main()
