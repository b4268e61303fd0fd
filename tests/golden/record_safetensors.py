"""Writes every_dtype.safetensors with the safetensors library: python record_safetensors.py

Element i of each tensor is i - 2 (unsigned: i; bool: i odd; complex: (i - 2) + i j).
"""

import pathlib

import safetensors.torch
import torch

SHAPES = {"": (2, 3), "/scalar": (), "/empty": (3, 0)}
SIGNED = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
UNSIGNED = {
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
}


def values(name, shape):
    n = torch.arange(torch.Size(shape).numel())
    if name in SIGNED:
        made = (n - 2).to(torch.float32).to(SIGNED[name])
    elif name in UNSIGNED:
        made = n.to(UNSIGNED[name])
    elif name == "F8_E8M0":
        made = n.to(torch.uint8).view(torch.float8_e8m0fnu)
    elif name == "C64":
        made = torch.complex((n - 2).float(), n.float())
    else:
        made = n % 2 == 1
    return made.reshape(shape)


names = [*SIGNED, *UNSIGNED, "F8_E8M0", "C64", "BOOL"]
tensors = {n + suffix: values(n, shape) for n in names for suffix, shape in SHAPES.items()}
tensors['q"uo\te\\ é 漢/\x7f'] = torch.tensor([1.5])
path = pathlib.Path(__file__).with_name("every_dtype.safetensors")
safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
