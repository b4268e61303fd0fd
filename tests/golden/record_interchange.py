"""Writes interchange/ with PyTorch: python record_interchange.py

For each optimizer, trains a network for 10 steps and saves its weights (<name>.model.safetensors)
and the optimizer's state (<name>.optimizer.safetensors, see docs/interchange.md). Then trains it for
10 more steps; data.safetensors contains their losses and the training data. All values are float64.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).with_name("interchange")
STEPS = 10
OPTIMIZERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.01, betas=(0.8, 0.9), amsgrad=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.95)),
}


def save_optimizer(path, optimizer):
    saved = optimizer.state_dict()
    tensors = {
        f"state.{index}.{name}": value.contiguous()
        for index, state in saved["state"].items()
        for name, value in state.items()
        if value is not None
    }
    save_file(tensors, path, {"param_groups": json.dumps(saved["param_groups"])})


def main():
    HERE.mkdir(exist_ok=True)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    x, y = torch.randn(2 * STEPS, 5, 3), torch.randn(2 * STEPS, 5, 2)
    record = {"x": x, "y": y}
    for name, make in OPTIMIZERS.items():
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        weights = [p for p in model.parameters() if p.dim() == 2]
        biases = [p for p in model.parameters() if p.dim() == 1]
        optimizer = make([{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 0.03}])
        losses = []
        for step in range(2 * STEPS):
            if step == STEPS:
                save_file(model.state_dict(), HERE / f"{name}.model.safetensors")
                save_optimizer(HERE / f"{name}.optimizer.safetensors", optimizer)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x[step]), y[step])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        record[f"losses.{name}"] = torch.stack(losses[STEPS:])
    save_file(record, HERE / "data.safetensors", {"source": f"torch {torch.__version__}"})


main()
