"""Records what PyTorch computes for the op cases: inputs, outputs and gradients, in float64.

    build/release/bin/list_op_cases | python tests/golden/record_ops.py [family...]

The cases come from tests/cases/*.cpp: list_op_cases prints them as JSON, each with the PyTorch
expression that computes the same (OpCase::torch). One file is written for each family,
tests/golden/ops/<family>.safetensors. A row of a case is stored as

    softmax/first/0/in0     the operands (floating ones are exact in float32 and stored so)
    softmax/first/0/out0    the results
    softmax/first/0/grad0   gradients of sum(out * cotangent), see cotangent() here and in op_case.cpp

An expression sees the operands as x[0], x[1], ..., torch, F (torch.nn.functional), inf, and the
functions in references.py. Recorded with PyTorch 2.15. The random numbers of a row depend on the
case's name and the row's position only. The last bits of results depend on the CPU, so values that
are already in a file are kept if the new ones differ from them by rounding only.
"""

import json
import pathlib
import sys
import warnings
import zlib

import numpy as np
import references
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

SPECIALS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e20, -1e20, 1e-20, -1e-20]


def make_input(operand, rng, position):
    """Returns an operand that tests/op_case.h describes."""
    kind, shape = operand["kind"], tuple(operand["shape"])
    low, high = operand["low"], operand["high"]
    if kind == "ints":
        values = torch.tensor(rng.integers(round(low), round(high), shape))
        return values.to(getattr(torch, operand["dtype"]))
    if kind == "floats":
        steps = rng.integers(0, round((high - low) * 64), shape)
        values = low + steps / 64 + (1 + position) / 512
    elif kind == "distinct":
        n = int(np.prod(shape))
        values = np.round((-2 + (rng.permutation(n) + 0.5) / max(n, 1) * 4) * 4096) / 4096
        values = values.reshape(shape)
    elif kind == "ties":
        values = rng.integers(-2, 3, shape)
    else:
        flat = np.resize(np.array(SPECIALS, dtype=np.float32), int(np.prod(shape)))
        values = flat.reshape(shape).astype(np.float64)
    return torch.tensor(values, dtype=torch.float64)


def cotangent(y, k):
    index = (np.arange(y.numel(), dtype=np.uint64) + 1 + 1000 * k) * 2654435761 & 0xFFFFFFFF
    values = ((index >> 16) % 15).astype(np.float64) - 7
    return torch.tensor(values / 8).reshape(y.shape).to(y.dtype)


class Recording:
    def __init__(self):
        self.tensors = {}

    def store(self, name, tensor):
        assert name not in self.tensors, name
        self.tensors[name] = tensor.detach().clone(memory_format=torch.contiguous_format)

    def record_row(self, case, number, row, call):
        prefix = f"{case['name']}/{number}"
        rng = np.random.default_rng(zlib.crc32(prefix.encode()))
        x = [make_input(operand, rng, i) for i, operand in enumerate(row)]
        for i, t in enumerate(x):
            if t.is_floating_point():
                self.store(f"{prefix}/in{i}", t.float())
                assert torch.equal(t.float().double().nan_to_num(7), t.nan_to_num(7))
                t.requires_grad_(case["gradient"] and not row[i]["frozen"])
            else:
                self.store(f"{prefix}/in{i}", t)
        y = call(x)
        y = [y] if isinstance(y, torch.Tensor) else list(y)
        for k, t in enumerate(y):
            self.store(f"{prefix}/out{k}", t)
        if not case["gradient"]:
            return
        pairs = [(t, cotangent(t, k)) for k, t in enumerate(y) if t.requires_grad]
        leaves = [(i, t) for i, t in enumerate(x) if t.requires_grad]
        grads = torch.autograd.grad(
            [t for t, _ in pairs], [t for _, t in leaves], [w for _, w in pairs], allow_unused=True
        )
        for (i, leaf), grad in zip(leaves, grads):
            self.store(f"{prefix}/grad{i}", torch.zeros_like(leaf) if grad is None else grad)

    def record_case(self, case):
        names = {**vars(references), "torch": torch, "F": F, "inf": float("inf")}
        call = eval(f"lambda x: {case['torch']}", names)
        for number, row in enumerate(case["rows"]):
            self.record_row(case, number, row, call)


def is_rounding(old, new):
    if old.dtype != new.dtype or old.shape != new.shape or not new.is_floating_point():
        return False
    largest = new.nan_to_num(0, 0, 0).abs().max().item() if new.numel() else 0
    eps = 8 * torch.finfo(new.dtype).eps
    zero = (old == 0) | (new == 0)
    return torch.equal(old[zero].signbit(), new[zero].signbit()) and torch.allclose(
        old, new, rtol=eps, atol=eps * max(1, min(largest, 1e6)), equal_nan=True
    )


def write(path, tensors):
    if path.exists():
        for name, old in load_file(path).items():
            if name in tensors and is_rounding(old, tensors[name]):
                tensors[name] = old
    save_file(tensors, path)


def promotion():
    """Returns tables of the promoted dtypes of two operands, as positions in dtypes."""
    dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    dtypes += [torch.int64, torch.int32, torch.uint8, torch.bool]

    def table(right):
        return torch.tensor([
            [dtypes.index((torch.ones(2, dtype=a) * right(b)).dtype) for b in dtypes]
            for a in dtypes
        ])

    numbers = [[dtypes.index((torch.ones(2, dtype=a) * n).dtype) for n in (2, 2.5)] for a in dtypes]
    return {
        "promotion/tensors": table(lambda b: torch.ones(2, dtype=b)),
        "promotion/scalars": table(lambda b: torch.ones((), dtype=b)),
        "promotion/numbers": torch.tensor(numbers),
    }


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # some cases compute the variance of no elements on purpose
    families = {"promotion": promotion()}
    for case in json.load(sys.stdin):
        if case["torch"]:
            recording = families.setdefault(case["family"], Recording())
            recording.record_case(case)
    folder = pathlib.Path(__file__).parent / "ops"
    folder.mkdir(exist_ok=True)
    for family, recording in families.items():
        if sys.argv[1:] and family not in sys.argv[1:]:
            continue
        tensors = recording if isinstance(recording, dict) else recording.tensors
        write(folder / f"{family}.safetensors", tensors)
        print(f"{family}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
