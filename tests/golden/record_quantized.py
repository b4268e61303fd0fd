"""Records quantized weights of bitsandbytes (its CPU backend), for tests/core/quantization: writes
quantized.safetensors.

For each weight and format: the values, absmax and, with double quantization, the nested absmax and
offset, and the dequantized weight. A row has 96 elements, so that blocks of 64 cross rows; the odd
weight ends within a block and a byte. For such rows, the compiled function of the CPU backend
(bitsandbytes 0.50.2) uses the scales of other blocks, so weights are dequantized with the backend that
is written in Python, which uses the same blocks as the quantization and as the CUDA backend.
"""

import pathlib

import bitsandbytes.functional as bnb
import torch
from bitsandbytes.autograd._functions import MatMul8bitLt, MatmulLtState
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
record = {}


def record_nf4(name, weight, block, nested):
    values, state = bnb.quantize_4bit(
        weight, blocksize=block, compress_statistics=nested, quant_type="nf4"
    )
    record[f"{name}.values"] = values.flatten()
    record[f"{name}.absmax"] = state.absmax
    absmax = state.absmax
    if nested:
        record[f"{name}.nested_absmax"] = state.state2.absmax
        record[f"{name}.nested_offset"] = state.offset.reshape(1)
        absmax = bnb.dequantize_blockwise(absmax, state.state2) + state.offset
    record[f"{name}.weight"] = _dequantize_4bit_compute(
        values.flatten(), absmax, state.code, block, weight.shape, weight.dtype
    )


def record_int8(name, weight):
    values, absmax, _ = bnb.int8_vectorwise_quant(weight.half())
    record[f"{name}.values"] = values
    record[f"{name}.absmax"] = absmax
    record[f"{name}.weight"] = bnb.int8_vectorwise_dequant(values, absmax)


def record_product(name, x, weight, bias, threshold):
    state = MatmulLtState()
    state.CB, state.SCB, _ = bnb.int8_vectorwise_quant(weight.half())
    state.threshold, state.has_fp16_weights = threshold, False
    x = x.half().requires_grad_()
    y = MatMul8bitLt.apply(x, state.CB, None, bias.half(), state)
    (y.float() ** 2).sum().backward()
    record[f"{name}.y"] = y.detach()
    record[f"{name}.grad"] = x.grad


torch.manual_seed(0)
# Rows of different magnitudes, a block of zeros, and more than 256 blocks.
weight = torch.randn(200, 96) * torch.logspace(-3, 0, 200)[:, None]
weight[2] = 0
weight[3] = 0
odd = torch.randn(7, 33) * 0.05
record["weight"] = weight.half()  # int8_vectorwise_quant gets f16 weights
record["odd"] = odd
record_nf4("nf4", weight.half().float(), 64, False)
record_nf4("nested", weight.half().float(), 64, True)
record_nf4("half", weight.half(), 128, True)
record_nf4("odd_nf4", odd, 64, False)
record_int8("int8", weight)
# A row of zeros, and outliers in two columns.
x = torch.randn(6, 96)
x[4] = 0
x[1, 5] = 9
x[3, 70] = -7
bias = torch.randn(200)
record["x"], record["bias"] = x.half(), bias.half()
record_product("outliers", x, weight, bias, 6.0)
record_product("no_outliers", x, weight, bias, 0.0)
save_file({name: t.contiguous() for name, t in record.items()}, HERE / "quantized.safetensors")
