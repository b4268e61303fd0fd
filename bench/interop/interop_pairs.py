"""Common code of bench/interop/check: the list of pairs, and tensors with known bytes."""

import json
import math
import pathlib
import subprocess
import traceback

import numpy as np
import safetensors
import tensorboard
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = f"torch {torch.__version__}"
NUMPY = f"numpy {np.__version__}"
SAFETENSORS = f"safetensors {safetensors.__version__}"
TRANSFORMERS = f"transformers {transformers.__version__}"
TENSORBOARD = f"tensorboard {tensorboard.__version__}"

# The dtypes in the order of kAllDTypes in tests/dtypes.h, with their names in safetensors files and
# their sizes in bytes.
DTYPES = {
    "float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2),
    "int64": ("I64", 8), "int32": ("I32", 4), "uint8": ("U8", 1), "bool": ("BOOL", 1),
    "int16": ("I16", 2), "int8": ("I8", 1), "uint64": ("U64", 8), "uint32": ("U32", 4),
    "uint16": ("U16", 2), "complex64": ("C64", 8), "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1), "float8_e8m0fnu": ("F8_E8M0", 1),
}


def pattern(dtype, shape):
    """Returns the known bytes of tensors in files (see interop.cpp)."""
    count = math.prod(shape) * DTYPES[dtype][1]
    return bytes((i + 1) % 2 if dtype == "bool" else (7 * i + 3) % 256 for i in range(count))


def described(dtype, shape):
    return {"dtype": dtype, "shape": list(shape), "bytes": pattern(dtype, shape).hex()}


def torch_pattern(dtype, shape):
    data = bytearray(pattern(dtype, shape))
    kind = getattr(torch, dtype)
    if not data:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(data, dtype=kind).reshape(shape)


def torch_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def expect(found, expected, what="found"):
    if found == expected:
        return
    # Finds the first item that differs.
    if isinstance(found, (list, dict)) and len(found) == len(expected):
        keys = found if isinstance(found, dict) else range(len(found))
        for key in keys:
            if isinstance(found, list) or key in expected:
                expect(found[key], expected[key], f"{what} at {key!r}:")
    raise AssertionError(f"{what} {found!r:.300}, not {expected!r:.300}")


class Pairs:
    def __init__(self, program, scratch):
        self.program, self.scratch, self.rows, self.failed = program, scratch, [], False
        self.ours = f"axle {self.call('version').strip()}"

    def call(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def ask(self, *arguments):
        return json.loads(self.call(*arguments))

    def folder(self, name):
        made = self.scratch / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def pair(self, writer, reader, what, check):
        """Adds a pair to the results. check() returns a description, or raises on a failure."""
        try:
            result = check()
        except Exception as error:
            traceback.print_exc()
            result, self.failed = f"failed: {type(error).__name__}: {error}", True
        self.rows.append({"writer": writer, "reader": reader, "what": what, "result": result})
        print(f"{writer} -> {reader}: {what}: {result}", flush=True)
