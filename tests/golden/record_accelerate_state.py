"""Writes with Accelerate: python record_accelerate_state.py

accelerate_state/whole and accelerate_state/pickled are checkpoints that save_state wrote during a
training run. The second checkpoint was written with safe_serialization=False and has only the first
model. losses.json contains the losses of the following micro-batches, in float64. scaler.pt, which
Accelerate writes on a GPU, is the state of a GradScaler on the CPU.
"""

import json
import pathlib
import shutil

import torch
from accelerate import Accelerator

HERE = pathlib.Path(__file__).with_name("accelerate_state")
SAVED_AFTER, GO_ON = 6, 6  # micro-batches


class Counter:
    def __init__(self):
        self.batches = 0

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state):
        self.batches = state["batches"]


def filled(model):
    first = 0
    for parameter in model.parameters():
        values = torch.arange(first, first + parameter.numel(), dtype=torch.float64)
        parameter.data = torch.sin(values).view(parameter.shape)
        first += parameter.numel()
    return model


def batch(i):
    x = torch.cos(torch.arange(6, dtype=torch.float64) + i).view(2, 3)
    return x, x.sum(1, keepdim=True) / 2


def record(folder, both, safe):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = filled(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)))
    adamw = torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.1)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, 20)
    scale = filled(torch.nn.Linear(1, 1))
    sgd = torch.optim.SGD(scale.parameters(), lr=0.02, momentum=0.9)
    steps = torch.optim.lr_scheduler.StepLR(sgd, 2, 0.5)
    counter = Counter()
    net, adamw, cosine = accelerator.prepare(net, adamw, cosine)
    if both:
        scale, sgd, steps = accelerator.prepare(scale, sgd, steps)
    accelerator.register_for_checkpointing(counter)
    losses = []
    for i in range(SAVED_AFTER + GO_ON):
        x, y = batch(i)
        with accelerator.accumulate(net, scale):
            prediction = scale(net(x)) if both else net(x)
            loss = ((prediction - y) ** 2).mean()
            accelerator.backward(loss)
            for o in [adamw, cosine, sgd, steps] if both else [adamw, cosine]:
                o.step()
            adamw.zero_grad()
            sgd.zero_grad()
        losses.append(loss.item())
        counter.batches += 1
        if i + 1 == SAVED_AFTER:
            accelerator.save_state(folder, safe_serialization=safe)
    return losses[SAVED_AFTER:]


def scaler():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=50)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(3):
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return scaler.state_dict()


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    losses = {"whole": record(HERE / "whole", True, True),
              "pickled": record(HERE / "pickled", False, False)}
    torch.save(scaler(), HERE / "whole" / "scaler.pt")
    (HERE / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")
