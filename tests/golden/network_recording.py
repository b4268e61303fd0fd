"""Functions with which record_networks.py records models: formula weights, training in float64 and
float32, and MODELS, the recorders by name."""

import contextlib
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
STEPS = 20
MODELS = {}


def uniform(shape, name):
    """Returns multiples of 2^-24 in [-0.5, 0.5)."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        h = i * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(31)
        h *= np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(29)
    return torch.tensor((h >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5).reshape(shape)


def weight(name, shape):
    """Returns the initial value of a parameter: vectors near 1 (weights) or 0 (biases), and others with variance
    1 / fan_in."""
    if len(shape) < 2:
        return uniform(shape, name) * 0.25 + (1 if name.endswith("weight") else 0)
    return uniform(shape, name) * np.sqrt(12 / np.prod(shape[1:]))


def integers(shape, name, count):
    return ((uniform(shape, name) + 0.5) * count).long()


def fill(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weight(name, p.shape))
    return model


@contextlib.contextmanager
def in_double():
    """Replaces conversions to float32, which models of Transformers contain, by conversions to float64."""
    to, to_float, softmax, arange = torch.Tensor.to, torch.Tensor.float, F.softmax, torch.arange

    def wider(value):
        return torch.float64 if value is torch.float32 else value

    def new_to(self, *args, **kwargs):
        return to(self, *map(wider, args), **{k: wider(v) for k, v in kwargs.items()})

    torch.Tensor.to = new_to
    torch.Tensor.float = torch.Tensor.double
    F.softmax = lambda *args, **kwargs: softmax(*args, **{k: wider(v) for k, v in kwargs.items()})
    torch.arange = lambda *args, **kwargs: arange(*args, **{k: wider(v) for k, v in kwargs.items()})
    torch.set_default_dtype(torch.float64)
    yield
    torch.Tensor.to, torch.Tensor.float, F.softmax, torch.arange = to, to_float, softmax, arange
    torch.set_default_dtype(torch.float32)


def scopes(dtype):
    return in_double() if dtype == torch.float64 else contextlib.nullcontext()


def record(name, make, out, loss, optimizer, steps=STEPS, f32_steps=None, state=None, more=None):
    """Records a model.

    make(dtype) returns a filled model, out(model, batch, dtype) its output, and
    loss(output, batch, dtype) the loss.
    """
    result = {"state": state, **(more or {})}
    for dtype in (torch.float64, torch.float32):
        with scopes(dtype):
            model = make(dtype).train()
            if dtype == torch.float64 and state is None:
                result["state"] = [[k, list(t.shape)] for k, t in model.state_dict().items()]
            own = optimizer(model.parameters())
            losses = []
            for step in range(steps if dtype == torch.float64 else f32_steps or steps):
                y = out(model, step % 2, dtype)
                value = loss(y, step % 2, dtype)
                value.backward()
                if dtype == torch.float64 and step == 0:
                    result["out"] = getattr(y, "logits", y).detach().flatten().tolist()
                    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
                    result["gradient"] = torch.stack(norms).norm().item()
                own.step()
                own.zero_grad()
                losses.append(value.item())
            result["f64" if dtype == torch.float64 else "f32"] = losses
            if dtype == torch.float64:
                model.eval()
                with torch.no_grad():
                    result["eval"] = loss(out(model, 0, dtype), 0, dtype).item()
    text = json.dumps(result, separators=(",", ":")) + "\n"
    (HERE / "networks" / f"{name}.json").write_text(text)
    print(name, result["f64"][0], result["f64"][-1], abs(result["f64"][-1] - result["f32"][-1])
          if len(result["f32"]) == len(result["f64"]) else "", len(text))


def sgd(lr):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def adamw(lr):
    return lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.1)


def model(function):
    MODELS[function.__name__] = lambda: function(function.__name__)
    return function


def images(size, batch, dtype, count=4):
    return (uniform((count, 3, size, size), f"images{batch}") * 4).to(dtype)


def classifier(name, make, size, optimizer, classes=10, **options):
    """Records a model that classifies images."""
    record(name, lambda dtype: fill(make().to(dtype)),
           lambda m, batch, dtype: m(images(size, batch, dtype)),
           lambda y, batch, dtype: F.cross_entropy(y, integers((4,), f"labels{batch}", classes)),
           optimizer, **options)


def tokens(batch, count, name="tokens", length=12):
    return integers((2, length), f"{name}{batch}", count)
