"""Records 20 training steps of the vision models of PyTorch and torchvision:

    python tests/golden/record_vision.py

writes vision.json: the loss of each step and of an evaluation after them, in float64 and (training
only) in float32, and the name and shape of each tensor of the state dict. The weights are too large
to store: element i of tensor number j is computed exactly from a hash, here and in
tests/nn/models/vision_test.cpp.

Tested with PyTorch 2.15 and torchvision 0.29.
"""

import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

STEPS, BATCH = 20, 8


def uniform(shape, number):
    """Returns multiples of 2^-24 in [-0.5, 0.5)."""
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        h = i * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(31)
        h *= np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(29)
    return torch.tensor((h >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5).reshape(shape)


def fill(model):
    """Sets matrices and kernels to uniform values in +-sqrt(6 / fan_in), and biases to 0. Other vectors keep
    PyTorch's ones."""
    with torch.no_grad():
        for number, (name, p) in enumerate(model.named_parameters()):
            if p.dim() >= 2:
                fan_in = p.numel() // p.shape[0]
                p.copy_(uniform(p.shape, number) * (2 * np.sqrt(6 / fan_in)))
            elif name.endswith("bias"):
                p.zero_()


class LeNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(6, 16, 5)
        self.fc1 = torch.nn.Linear(400, 120)
        self.fc2 = torch.nn.Linear(120, 84)
        self.fc3 = torch.nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def resnet18_small():
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = torch.nn.Identity()
    return model


# With these rates float32 and float64 stay close; larger ones make the losses chaotic.
MODELS = {
    "lenet": (LeNet, (1, 28, 28), 0.01),
    "resnet18_small": (resnet18_small, (3, 32, 32), 3e-5),
    "resnet50": (lambda: torchvision.models.resnet50(num_classes=10), (3, 64, 64), 1e-4),
}


def losses(name, dtype, steps):
    make, shape, lr = MODELS[name]
    model = make().to(dtype)
    fill(model)
    sgd = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    recorded = []
    for step in range(steps):
        images = uniform((BATCH, *shape), 1000 + step % 2).to(dtype) * 4
        labels = (uniform((BATCH,), 2000 + step % 2) * 10 + 5).long()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        sgd.step()
        sgd.zero_grad()
        recorded.append(loss.item())
    model.eval()
    with torch.no_grad():
        recorded.append(F.cross_entropy(model(images), labels).item())
    return recorded


def main():
    result = {"source": f"torch {torch.__version__}, torchvision {torchvision.__version__}"}
    for name, (make, _, _) in MODELS.items():
        result[name] = {"f64": losses(name, torch.float64, 2 if name == "resnet50" else STEPS)}
        if name != "resnet50":
            result[name]["f32"] = losses(name, torch.float32, STEPS)[:-1]
        result[name]["state"] = [[k, list(t.shape)] for k, t in make().state_dict().items()]
    path = pathlib.Path(__file__).with_name("vision.json")
    path.write_text(json.dumps(result, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
