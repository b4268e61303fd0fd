"""Records what PyTorch computes for the op cases: inputs, outputs and gradients, in float64.

    python tests/golden/record_ops.py

writes ops.safetensors beside this file. Names and rows are those of tests/cases/*.cpp; a test fails
where the two lists differ. A row of a case holds

    softmax/first/0/in0     the operands (floating ones are exact in float32 and stored so)
    softmax/first/0/out0    the results
    softmax/first/0/grad0   gradients of sum(out * cotangent), see cotangent() here and in op_case.cpp

Tested with PyTorch 2.15. The values depend on no random state but the case's name.
"""

import functools
import pathlib
import warnings
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

recorded = {}
inf = float("inf")

# --- operands: shape and values, as in tests/op_case.h


def floats(*shape, low=-2, high=2):
    def make(rng, position):
        steps = rng.integers(0, round((high - low) * 64), shape)
        return torch.tensor(low + steps / 64 + (1 + position) / 512, dtype=torch.float64)

    return make


def distinct(*shape):
    def make(rng, position):
        n = int(np.prod(shape))
        values = np.round((-2 + (rng.permutation(n) + 0.5) / max(n, 1) * 4) * 4096) / 4096
        return torch.tensor(values.reshape(shape), dtype=torch.float64)

    return make


def ties(*shape):
    return lambda rng, position: torch.tensor(rng.integers(-2, 3, shape), dtype=torch.float64)


def frozen(make):
    """An operand that takes no gradient."""

    def make_frozen(rng, position):
        return make(rng, position)

    make_frozen.frozen = True
    return make_frozen


def specials(*shape):
    values = [0.0, -0.0, 1.0, -1.0, inf, -inf, float("nan"), 1e20, -1e20, 1e-20, -1e-20]

    def make(rng, position):
        flat = np.resize(np.array(values, dtype=np.float32), int(np.prod(shape)))
        return torch.tensor(flat.reshape(shape).astype(np.float64))

    return make


def ints(*shape, low=0, high=2, dtype=torch.int64):
    return lambda rng, position: torch.tensor(rng.integers(low, high, shape)).to(dtype)


def mask(*shape):
    return ints(*shape, dtype=torch.bool)


# --- recording


def cotangent(y, k):
    index = (np.arange(y.numel(), dtype=np.uint64) + 1 + 1000 * k) * 2654435761 & 0xFFFFFFFF
    values = ((index >> 16) % 15).astype(np.float64) - 7
    return torch.tensor(values / 8).reshape(y.shape).to(y.dtype)


def store(name, tensor):
    assert name not in recorded, name
    recorded[name] = tensor.detach().clone(memory_format=torch.contiguous_format)


def case(name, call, *rows, gradient=True):
    for r, row in enumerate(rows or ([],)):
        rng = np.random.default_rng(zlib.crc32(f"{name}/{r}".encode()))
        x = [make(rng, i) for i, make in enumerate(row)]
        for i, t in enumerate(x):
            if t.is_floating_point():
                store(f"{name}/{r}/in{i}", t.float())
                assert torch.equal(t.float().double().nan_to_num(7), t.nan_to_num(7))
                t.requires_grad_(gradient and not hasattr(row[i], "frozen"))
            else:
                store(f"{name}/{r}/in{i}", t)
        y = call(*x)
        y = [y] if isinstance(y, torch.Tensor) else list(y)
        for k, t in enumerate(y):
            store(f"{name}/{r}/out{k}", t)
        if not gradient:
            continue
        pairs = [(t, cotangent(t, k)) for k, t in enumerate(y) if t.requires_grad]
        leaves = [(i, t) for i, t in enumerate(x) if t.requires_grad]
        grads = torch.autograd.grad(
            [t for t, _ in pairs], [t for _, t in leaves], [w for _, w in pairs], allow_unused=True
        )
        for (i, leaf), grad in zip(leaves, grads):
            store(f"{name}/{r}/grad{i}", torch.zeros_like(leaf) if grad is None else grad)


# --- creation


def create():
    case("zeros", lambda: torch.zeros(2, 3), gradient=False)
    case("zeros/scalar", lambda: torch.zeros((), dtype=torch.int64), gradient=False)
    case("ones", lambda: torch.ones(3, 67, dtype=torch.float64), gradient=False)
    case("ones/empty", lambda: torch.ones(0, 3, dtype=torch.bool), gradient=False)
    case("full", lambda: torch.full((2, 3), 1.5), gradient=False)
    case("full/ints", lambda: torch.full((7,), -3, dtype=torch.int32), gradient=False)
    like = [[floats(2, 3)], [floats()], [floats(0, 4)], [ints(5, high=9)]]
    case("zeros_like", torch.zeros_like, *like, gradient=False)
    case("ones_like", torch.ones_like, *like, gradient=False)
    case("full_like", lambda x: torch.full_like(x, 3), *like, gradient=False)
    case("arange", lambda: torch.arange(5), gradient=False)
    case("arange/none", lambda: torch.arange(0), gradient=False)
    case("arange/steps", lambda: torch.arange(1, 11, 3), gradient=False)
    case("arange/backwards", lambda: torch.arange(5, -1, -2), gradient=False)
    case("arange/floats", lambda: torch.arange(0, 1, 0.1, dtype=torch.float64), gradient=False)
    case("arange/f32", lambda: torch.arange(-1, 1, 0.25, dtype=torch.float32), gradient=False)
    case("tensor", lambda: torch.tensor([[1, -2.5, 3], [4, 5, 6]]), gradient=False)
    case("tensor/ints", lambda: torch.tensor([[1], [1 << 40], [-3]]), gradient=False)
    case("tensor/none", lambda: torch.empty(0, 2), gradient=False)


def dropout():
    rows = [[floats(4, 5)], [floats()], [floats(0, 3)], [floats(1, 1)], [floats(3, 67)]]
    case("dropout/off", lambda x: F.dropout(x, 0.25, False), *rows)
    case("dropout/everything", lambda x: F.dropout(x, 1.0), *rows)


# --- dtype and layout


def convert():
    rows = [[floats(4, 5)], [floats()], [floats(2, 0, 3)], [floats(3, 1)], [floats(3, 67)]]
    case("to", lambda x: x.to(torch.float32), *rows)
    case("to/f64", lambda x: x.to(torch.float64), *rows)
    case("to/bf16", lambda x: x.to(torch.bfloat16), *rows)
    case("to/f16", lambda x: x.to(torch.float16), *rows)
    case("to/int64", lambda x: x.to(torch.int64), *rows, gradient=False)
    case("to/int32", lambda x: x.to(torch.int32), *rows, gradient=False)
    case("to/bool", lambda x: x.to(torch.bool), *rows, gradient=False)
    whole = [[ints(3, 5, low=-9, high=9)], [ints(67, high=255, dtype=torch.uint8)], [mask(7)]]
    case("to/float_of_ints", lambda x: x.to(torch.float64), *whole, gradient=False)
    case("to/device", lambda x: x.to("cpu"), *rows)
    case("contiguous", lambda x: x.contiguous(), *rows)
    square = [[floats(4, 5)], [floats(0, 3)], [floats(1, 6)], [floats(17, 67)]]
    case("contiguous/transposed", lambda x: x.T.contiguous(), *square)
    case("clone", lambda x: x.clone(), *rows)


# --- views


def shapes():
    rows = [[floats(4, 6)], [floats(0, 3)], [floats(2, 1, 2)], [floats(2, 67)]]
    case("view", lambda x: x.view(-1, 2), *rows)
    case(
        "view/unit_dims",
        lambda x: x.view(1, x.size(0), 1, x.size(1)),
        [floats(4, 6)],
        [floats(0, 3)],
        [floats(1, 1)],
    )
    case("view/scalar", lambda x: x.view(()), [floats(1, 1)], [floats()])
    rows = [[floats(4, 6)], [floats(0, 3)], [floats()], [floats(2, 1, 2)], [floats(3, 67)]]
    case("reshape", lambda x: x.reshape(-1), *rows)
    rows = [[floats(4, 6)], [floats(0, 2)], [floats(6, 1)]]
    case("reshape/transposed", lambda x: x.T.reshape(2, -1), *rows)
    rows = [[floats(2, 3, 4)], [floats()], [floats(2, 0)], [floats(67)]]
    case("flatten", lambda x: x.flatten(), *rows)
    rows = [[floats(2, 3, 4, 2)], [floats(2, 0, 3, 1)]]
    case("flatten/middle", lambda x: x.flatten(1, -2), *rows)
    rows = [[floats(2, 1)], [floats(0, 1)], [floats(1, 1)], [floats(67, 1)]]
    case("expand", lambda x: x.expand(3, -1, 5), *rows)
    case("expand/scalar", lambda x: x.expand(2, 3), [floats()], [floats(1)])
    case("expand/to_nothing", lambda x: x.expand(0, 3), [floats(1, 3)])
    rows = [[floats(3, 1, 2)], [floats(67, 1)], [floats(3, 4)], [floats(0, 1)]]
    case("squeeze", lambda x: x.squeeze(1), *rows)
    case("squeeze/last", lambda x: x.squeeze(-1), [floats(3, 1)], [floats(1)], [floats()])
    rows = [[floats(3, 2)], [floats()], [floats(0, 3)], [floats(67)]]
    case("unsqueeze", lambda x: x.unsqueeze(-1), *rows)
    case("unsqueeze/first", lambda x: x.unsqueeze(0), [floats(3, 2)], [floats()])
    rows = [[floats(2, 3, 4)], [floats(2, 3, 1)], [floats(0, 3, 4)], [floats(3, 67)]]
    case("sum_to", lambda x: x.sum_to_size(3, 1), *rows)
    case("sum_to/scalar", lambda x: x.sum_to_size(()), [floats(5)], [floats()], [floats(3, 67)])
    case("sum_to/same", lambda x: x.sum_to_size(2, 3), [floats(2, 3)])


def orders_and_parts():
    rows = [[floats(3, 4)], [floats(2, 3, 4)], [floats(0, 5)], [floats(3, 67)]]
    case("transpose", lambda x: x.transpose(0, -1), *rows)
    rows = [[floats(2, 3, 4)], [floats(2, 0, 1)], [floats(1, 1, 1)], [floats(2, 2, 67)]]
    case("permute", lambda x: x.permute(2, 0, -2), *rows)

    rows = [[floats(3, 4)], [floats(0, 4)], [floats(1, 5, 2)], [floats(3, 67)]]
    case("narrow", lambda x: x.narrow(1, 1, 3), *rows)
    case("narrow/nothing", lambda x: x.narrow(1, 4, 0), *rows)
    case("slice", lambda x: x[:, 1::2], *rows)
    case("slice/from_end", lambda x: x[:, -3:-1], *rows)
    case("slice/beyond", lambda x: x[..., -100:100:3], *rows)
    case("slice/nothing", lambda x: x[:, 3:2], *rows)
    rows = [[floats(3, 4)], [floats(2)], [floats(2, 0)], [floats(3, 67)]]
    case("select", lambda x: x.select(0, 1), *rows)
    rows = [[floats(3, 4)], [floats(2)], [floats(0, 2)]]
    case("select/last", lambda x: x.select(-1, -1), *rows)

    rows = [[floats(7, 2)], [floats(6, 3)], [floats(7, 0)], [floats(0, 2)], [floats(67)]]
    case("split", lambda x: x.split(3), *rows)
    case("split/one_used", lambda x: x.split(3)[-1], *rows)
    case("split/sizes", lambda x: x.split([1, 0, 5], 1), [floats(2, 6)], [floats(0, 6)])
    case("chunk", lambda x: x.chunk(3), *rows)
    case("chunk/last", lambda x: x.chunk(3, -1), [floats(2, 7)], [floats(2, 2)])


def joins():
    case(
        "cat",
        lambda *x: torch.cat(x, 1),
        [floats(2, 3), floats(2, 1), floats(2, 4)],
        [floats(0, 3), floats(0, 1), floats(0, 2)],
        [floats(2, 0), floats(2, 1), floats(2, 2)],
        [floats(3, 67), floats(3, 1), floats(3, 5)],
    )
    rows = [[floats(2, 3), floats(1, 3)], [floats(3), floats(0)]]
    case("cat/first", lambda *x: torch.cat(x), *rows)
    rows = [[floats(2, 3), ints(1, 3, low=-9, high=9)]]
    case("cat/promoted", lambda *x: torch.cat(x, -2), *rows)
    case(
        "stack",
        lambda *x: torch.stack(x),
        [floats(2, 3)] * 3,
        [floats()] * 3,
        [floats(0, 3)] * 2,
        [floats(3, 67)] * 2,
    )
    case("stack/last", lambda *x: torch.stack(x, -1), [floats(2, 3)] * 2, [floats()] * 2)


# --- arithmetic


def binary(name, call, low=-2):
    pairs = [
        ((4, 5), (4, 5)),
        ((3, 1, 4), (2, 1)),
        ((), (5,)),
        ((5,), ()),
        ((0, 3), (1, 3)),
        ((), ()),
        ((3, 67), (67,)),
        ((3, 1), (1, 67)),
    ]
    case(name, call, *[[floats(*a, low=low), floats(*b, low=low)] for a, b in pairs])
    case(f"{name}/specials", call, [specials(11, 1), specials(1, 11)], gradient=False)


def with_number(name, call, low=-2):
    case(name, call, *[[floats(*s, low=low)] for s in [(4, 5), (), (2, 0, 3), (3, 67)]])


def on_ints(name, call):
    i32, u8 = torch.int32, torch.uint8
    case(
        name,
        call,
        [ints(3, 67, low=-9, high=9), ints(67, low=1, high=9)],
        [ints(3, 5, low=-9, high=9, dtype=i32), ints(3, 1, low=1, high=9)],
        [ints(7, high=99, dtype=u8), ints(7, low=1, high=9, dtype=u8)],
        [ints(7, low=-9, high=9), ints(low=1, high=9, dtype=i32)],
        [ints(0, 3, low=-9, high=9, dtype=i32), ints(1, 3, low=1, high=9, dtype=i32)],
        gradient=False,
    )


def arithmetic():
    binary("add", torch.add)
    binary("sub", torch.sub)
    binary("mul", torch.mul)
    binary("div", torch.div, low=0.5)
    binary("maximum", torch.maximum)
    binary("minimum", torch.minimum)
    binary("pow", torch.pow, low=0.5)

    with_number("add/number", lambda x: x + 1.5)
    with_number("sub/number", lambda x: x - 1.5)
    with_number("mul/number", lambda x: x * -2.5)
    with_number("div/number", lambda x: x / 3)
    with_number("sub/from_number", lambda x: 1.5 - x)
    with_number("div/number_by", lambda x: 1.5 / x, low=0.5)
    with_number("pow/number", lambda x: x**2.5, low=0.5)
    with_number("pow/root", lambda x: x**0.5, low=0.5)
    with_number("pow/negative", lambda x: x**-1.5, low=0.5)
    for exponent in range(5):
        with_number(f"pow/{exponent}", lambda x: x**exponent)

    on_ints("add/ints", torch.add)
    on_ints("sub/ints", torch.sub)
    on_ints("mul/ints", torch.mul)
    on_ints("div/ints", torch.div)
    on_ints("maximum/ints", torch.maximum)
    on_ints("minimum/ints", torch.minimum)
    on_ints("pow/ints", lambda x, y: x**3)
    on_ints("add/int_number", lambda x, y: x + 2)
    on_ints("mul/float_number", lambda x, y: x * 1.5)
    case(
        "mul/promoted",
        lambda a, b, c: a * b * c,
        [floats(3, 5), ints(5, low=-3, high=4), mask(3, 5)],
        [floats(67), ints(low=-3, high=4, dtype=torch.int32), mask(67)],
    )
    case("mul/itself", lambda x: x * x, [floats(3, 5)], [floats(67)])
    rows = [[ties(4, 5), ties(4, 5)], [ties(3, 67), ties(67)]]
    case("maximum/ties", torch.maximum, *rows)
    case("minimum/ties", torch.minimum, *rows)


def compare():
    rows = [
        [ties(4, 5), ties(4, 5)],
        [ties(3, 1, 4), ties(2, 1)],
        [ties(), ties(5)],
        [ties(0, 3), ties(1, 3)],
        [ties(3, 67), ties(67)],
        [specials(11, 1), specials(1, 11)],
        [ints(67, low=-2, high=3), ints(67, low=-2, high=3)],
        [ints(3, 5, high=3, dtype=torch.uint8), ints(5, high=3, dtype=torch.int32)],
        [mask(7), ints(7, high=3)],
        [ties(7), ints(7, low=-2, high=3)],
    ]
    numbers = dict(eq=1, ne=1, lt=0.5, le=1, gt=0.5, ge=1)
    single = [[ties(3, 67)], [ties()], [ties(0, 3)], [specials(11)], [ints(9, low=-2, high=3)]]
    for name, number in numbers.items():
        compared = getattr(torch, name)
        case(name, compared, *rows, gradient=False)
        case(f"{name}/number", lambda x: compared(x, number), *single, gradient=False)

    case(
        "where",
        torch.where,
        [mask(4, 5), floats(4, 5), floats(4, 5)],
        [mask(3, 1), floats(4), floats()],
        [mask(), floats(3), floats(2, 1)],
        [mask(0, 3), floats(1, 3), floats(3)],
        [mask(67), floats(3, 67), floats(3, 1)],
    )
    case("where/promoted", torch.where, [mask(4, 5), floats(4, 5), ints(5, low=-9, high=9)])
    case(
        "masked_fill",
        lambda x, m: x.masked_fill(m, -1.5),
        [floats(4, 5), mask(4, 5)],
        [floats(2, 3, 4), mask(3, 1)],
        [floats(), mask()],
        [floats(0, 3), mask(3)],
        [floats(3, 67), mask(67)],
    )
    rows = [[floats(4, 5), mask(5)]]
    case("masked_fill/infinite", lambda x, m: x.masked_fill(m, -inf), *rows, gradient=False)


# --- one operand


def unary(name, call, low, high):
    shapes = [(7,), (), (2, 0, 3), (3, 1), (3, 67)]
    case(name, call, *[[floats(*s, low=low, high=high)] for s in shapes])
    case(f"{name}/specials", call, [specials(11)], gradient=False)


def saturates(name, call):
    ranges = [(67, -32, 32), (9, 80, 96), (9, -96, -80)]
    case(f"{name}/far", call, *[[floats(n, low=a, high=b)] for n, a, b in ranges])


def kinked(name, call):
    case(f"{name}/ties", call, [ties(67)])
    whole = [[ints(3, 5, low=-9, high=9)], [ints(67, low=-9, high=9, dtype=torch.int32)]]
    case(f"{name}/ints", call, *whole, gradient=False)


def unaries():
    gelu_tanh = lambda x: F.gelu(x, approximate="tanh")
    unary("neg", torch.neg, -2, 2)
    unary("abs", torch.abs, -2, 2)
    kinked("abs", torch.abs)
    unary("exp", torch.exp, -4, 4)
    unary("log", torch.log, 0.25, 4)
    unary("sqrt", torch.sqrt, 0.25, 4)
    unary("rsqrt", torch.rsqrt, 0.25, 4)
    unary("tanh", torch.tanh, -2, 2)
    saturates("tanh", torch.tanh)
    unary("sigmoid", torch.sigmoid, -4, 4)
    saturates("sigmoid", torch.sigmoid)
    unary("relu", torch.relu, -2, 2)
    kinked("relu", torch.relu)
    unary("gelu", F.gelu, -4, 4)
    saturates("gelu", F.gelu)
    unary("gelu/tanh", gelu_tanh, -4, 4)
    saturates("gelu/tanh", gelu_tanh)
    unary("silu", F.silu, -4, 4)
    saturates("silu", F.silu)
    for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid"):
        rows = [[ints(3, 5, low=1, high=9)], [ints(67, low=1, high=9, dtype=torch.int32)], [mask(7)]]
        case(f"{name}/ints", getattr(torch, name), *rows, gradient=False)
    unary("clamp", lambda x: x.clamp(-0.5, 1), -2, 2)
    unary("clamp/below", lambda x: x.clamp(min=-0.5), -2, 2)
    unary("clamp/above", lambda x: x.clamp(max=0.5), -2, 2)
    kinked("clamp", lambda x: x.clamp(-1, 1))


# --- reductions


def over_dims(name, values, call):
    def variant(suffix, shapes, dims, keepdim):
        rows = [[values(*s)] for s in shapes]
        case(name + suffix, lambda x: call(x, dims, keepdim), *rows)

    variant("", [(3, 4), (2, 3, 2, 2), (3, 67)], None, False)
    variant("/keepdim", [(3, 4)], None, True)
    variant("/last", [(3, 4), (0, 4), (3, 67), (2,)], -1, False)
    variant("/first", [(3, 4), (3, 0), (67, 3), (67, 1, 5)], 0, True)
    variant("/middle", [(2, 3, 4), (0, 2, 3), (3, 5, 2, 2)], 1, False)
    variant("/two", [(2, 3, 4), (2, 0, 3), (2, 3, 67)], (0, -1), False)
    variant("/kept_two", [(2, 3, 4), (2, 3, 2, 3)], (0, -2), True)


def extreme(x, dims, keepdim, f):
    return f(x, dim=() if dims is None else dims, keepdim=keepdim)


def reductions():
    def total(x, dims, keepdim):
        return x.sum(dims, keepdim=keepdim)

    def average(x, dims, keepdim):
        return x.mean(dims, keepdim=keepdim)

    over_dims("sum", floats, total)
    over_dims("mean", floats, average)
    over_dims("var", floats, lambda x, d, k: x.var(d, correction=1, keepdim=k))
    over_dims("var/population", floats, lambda x, d, k: x.var(d, correction=0, keepdim=k))
    over_dims("max", distinct, lambda x, d, k: extreme(x, d, k, torch.amax))
    over_dims("min", distinct, lambda x, d, k: extreme(x, d, k, torch.amin))

    empty = [[floats(0, 3)], [floats(0)]]
    case("sum/nothing", lambda x: x.sum(), *empty)
    case("sum/no_rows", lambda x: x.sum(0), *empty)
    case("mean/nothing", lambda x: x.mean(), *empty)
    case("var/nothing", lambda x: x.var(), *empty, gradient=False)
    case("var/single", lambda x: x.var(-1), [floats(1)], [floats(3, 1)], gradient=False)
    case("sum/scalar", lambda x: x.sum(-1), [floats()])
    case("mean/scalar", lambda x: x.mean(0, keepdim=True), [floats()])
    case("max/scalar", lambda x: x.amax(), [floats()])
    case("min/scalar", lambda x: x.amin(), [floats()])
    i32, u8 = torch.int32, torch.uint8
    case(
        "sum/ints",
        lambda x: x.sum(),
        [ints(3, 67, low=-9, high=9, dtype=i32)],
        [ints(300, low=200, high=256, dtype=u8)],
        [mask(3, 67)],
        [ints(0, high=9)],
        gradient=False,
    )
    rows = [[ints(3, 67, low=-9, high=9, dtype=i32)], [mask(3, 67)]]
    case("sum/int_rows", lambda x: x.sum(1), *rows, gradient=False)
    case("sum/specials", lambda x: x.sum(), [specials(11)], [specials(3)], gradient=False)
    far = [[floats(3, 67, low=1000, high=1002)]]
    case("var/far", lambda x: x.var(-1), *far, gradient=False)

    even = [[ties(4, 5)], [ties(3, 67)], [ties(2, 1)]]
    case("max/ties", lambda x: x.amax(-1), *even)
    case("min/ties", lambda x: x.amin(-1), *even)
    case("max/all_ties", lambda x: x.amax(), *even)
    case("min/all_ties", lambda x: x.amin(), *even)
    whole = [
        [ints(3, 67, low=-9, high=9)],
        [ints(5, high=200, dtype=u8)],
        [specials(11)],
        [specials(3, 11)],
    ]
    case("max/other", lambda x: x.amax(-1), *whole, gradient=False)
    case("min/other", lambda x: x.amin(-1), *whole, gradient=False)
    rows = [
        [floats(3, 4)],
        [floats()],
        [floats(0, 4)],
        [floats(5, 1)],
        [ties(3, 67)],
        [specials(11)],
        [ints(4, 9, low=-2, high=3)],
    ]
    first = [[ties(3, 4)], [ties(67, 5)], [ties(9, 2, 3)]]
    for name, find in dict(argmax=torch.argmax, argmin=torch.argmin).items():
        case(name, lambda x: find(x, -1), *rows, gradient=False)
        case(f"{name}/first", lambda x: find(x, 0, keepdim=True), *first, gradient=False)

    shapes = [(3, 4), (), (0, 4), (4, 0), (5, 1), (3, 67), (2, 600)]
    case("cumsum", lambda x: x.cumsum(-1), *[[floats(*s)] for s in shapes])
    shapes = [(4, 3), (67, 3, 5), (0, 3)]
    case("cumsum/first", lambda x: x.cumsum(0), *[[floats(*s)] for s in shapes])
    case("cumsum/middle", lambda x: x.cumsum(1), [floats(2, 5, 3)], [floats(2, 67, 3)])
    rows = [
        [ints(3, 67, low=-9, high=9)],
        [ints(5, 4, low=-9, high=9, dtype=i32)],
        [ints(67, low=200, high=256, dtype=u8)],
        [mask(3, 67)],
        [specials(4)],
        [specials(3, 11)],
    ]
    case("cumsum/other", lambda x: x.cumsum(-1), *rows, gradient=False)


# --- indexing


def indexing():
    i32 = torch.int32
    # PyTorch wants i64 where Axle takes i32 as well.
    case(
        "gather",
        lambda x, i: x.gather(1, i.long()),
        [floats(3, 5), ints(3, 4, high=5)],
        [floats(3, 5, 2), ints(2, 7, 1, high=5)],
        [floats(3, 5), ints(3, 0, high=5)],
        [floats(3, 67), ints(3, 67, high=67, dtype=i32)],
        [floats(2, 1), ints(2, 3, high=1)],
    )
    case(
        "gather/first",
        lambda x, i: x.gather(0, i),
        [floats(5, 3), ints(4, 3, high=5)],
        [floats(9), ints(20, high=9)],
        [floats(5, 67), ints(2, 40, high=5)],
    )
    rows = [
        [floats(4, 5, 3), ints(6, high=4)],
        [floats(4, 4), ints(0, high=4)],
        [floats(4, 4, 0), ints(3, high=4)],
        [floats(9, 67), ints(5, high=9, dtype=i32)],
    ]
    case("index_select", lambda x, i: x.index_select(0, i), *rows)
    case("index_select/inner", lambda x, i: x.index_select(1, i), *rows)
    rows = [[floats(67), ints(80, high=67)]]
    case("index_select/one_dim", lambda x, i: x.index_select(-1, i), *rows)
    case(
        "scatter_add",
        lambda x, i, s: x.scatter_add(1, i.long(), s),
        [floats(3, 5), ints(3, 4, high=5), floats(3, 4)],
        [floats(3, 5), ints(2, 9, high=5), floats(2, 9)],
        [floats(3, 5), ints(3, 0, high=5), floats(3, 0)],
        [floats(3, 67), ints(3, 67, high=67, dtype=i32), floats(3, 67)],
    )
    case(
        "scatter_add/first",
        lambda x, i, s: x.scatter_add(0, i, s),
        [floats(2, 5), ints(9, 5, high=2), floats(9, 5)],
        [floats(5), ints(67, high=5), floats(67)],
    )
    rows = [
        [ints(2, 3, high=5), floats(5, 4)],
        [ints(high=5), floats(5, 4)],
        [ints(0, 3, high=5), floats(5, 4)],
        [ints(9, high=5, dtype=i32), floats(5, 67)],
        [ints(7, low=2, high=3), floats(5, 1)],
    ]
    case("embedding", lambda i, w: F.embedding(i, w), *rows)
    case("embedding/padding", lambda i, w: F.embedding(i, w, padding_idx=2), *rows)
    case("embedding/last_is_padding", lambda i, w: F.embedding(i, w, padding_idx=-1), *rows)
    rows = [[ints(2, 3, high=5)], [ints(high=5)], [ints(0, 3, high=5)], [ints(67, high=5)]]
    case("one_hot", lambda i: F.one_hot(i, 5), *rows, gradient=False)

    rows = [[distinct(7)], [distinct(2, 3)], [distinct(0, 5)], [distinct(3, 67)]]
    case("topk", lambda x: x.topk(3), *rows)
    rows = [[distinct(7)], [distinct(5, 2)], [distinct(67, 2, 2)]]
    case("topk/smallest", lambda x: x.topk(3, 0, largest=False), *rows)

    def ordered(x, dim=-1, descending=False):
        return torch.sort(x, dim=dim, descending=descending, stable=True)

    shapes = [(7,), (), (0, 5), (5, 0), (5, 1), (3, 67), (2, 3, 4)]
    case("sort", ordered, *[[distinct(*s)] for s in shapes])
    rows = [[distinct(7)], [distinct()], [distinct(3, 67)]]
    case("sort/descending", lambda x: ordered(x, -1, True), *rows)
    case("sort/first", lambda x: ordered(x, 0), [distinct(5, 3)], [distinct(67, 2, 2)])
    case("sort/middle", lambda x: ordered(x, 1, True), [distinct(2, 5, 3)], [distinct(2, 67, 3)])
    rows = [
        [ties(9)],
        [ties(3, 67)],
        [specials(3, 11)],
        [specials(2, 67)],
        [ints(4, 67, low=-9, high=9)],
        [ints(4, 67, low=-9, high=9, dtype=i32)],
        [ints(300, high=256, dtype=torch.uint8)],
        [mask(3, 67)],
    ]
    case("sort/equals", ordered, *rows, gradient=False)
    case("sort/equals_descending", lambda x: ordered(x, -1, True), *rows, gradient=False)
    rows = [[ties(9)], [distinct()], [distinct(0, 5)], [specials(3, 67)]]
    case("argsort", lambda x: ordered(x)[1], *rows, gradient=False)
    rows = [[ties(67, 3)], [ints(9, 2, low=-3, high=3)]]
    case("argsort/first", lambda x: ordered(x, 0, True)[1], *rows, gradient=False)
    shapes = [(4, 5), (5, 4), (0, 3), (2, 3, 3), (3, 67), (1, 1)]
    for diagonal, suffix in [(0, ""), (1, "/above"), (-2, "/below")]:
        case(f"tril{suffix}", lambda x: x.tril(diagonal), *[[floats(*s)] for s in shapes])
        case(f"triu{suffix}", lambda x: x.triu(diagonal), *[[floats(*s)] for s in shapes])
    rows = [[mask(5, 5)], [ints(3, 7, low=1, high=9)]]
    case("tril/mask", torch.tril, *rows, gradient=False)


# --- products


def products():
    def pairs(*shapes):
        return [[floats(*a), floats(*b)] for a, b in shapes]

    rows = pairs(
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((4,), (4, 5)),
        ((1, 1), (1, 1)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
        ((3, 4), (4, 0)),
        ((17, 67), (67, 9)),
    )
    case("matmul", torch.matmul, *rows)
    rows = pairs(
        ((2, 3, 4), (2, 4, 5)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 2)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 3)),
        ((0, 3, 4), (4, 5)),
        ((2, 3, 0), (2, 0, 5)),
        ((1, 5, 7), (3, 7, 9)),
    )
    case("matmul/batched", torch.matmul, *rows)

    rows = [
        [floats(3, 4), floats(5, 4), floats(5)],
        [floats(4), floats(5, 4), floats(5)],
        [floats(0, 4), floats(5, 4), floats(5)],
        [floats(2, 3, 4), floats(1, 4), floats(1)],
        [floats(3, 17, low=-1, high=1), floats(67, 17, low=-1, high=1), floats(67)],
    ]
    case("linear", F.linear, *rows)
    case("linear/relu", lambda x, w, b: F.relu(F.linear(x, w, b)), *rows)
    case("linear/gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), *rows)
    case("linear/gelu_tanh", lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"), *rows)
    case("linear/silu", lambda x, w, b: F.silu(F.linear(x, w, b)), *rows)
    rows = pairs(((3, 4), (5, 4)), ((2, 0, 4), (5, 4)), ((2, 2, 4), (3, 4)), ((4,), (5, 4)))
    case("linear/no_bias", lambda x, w: F.linear(x, w), *rows)
    rows = pairs(((3, 4), (5, 4)))
    case("linear/no_bias_relu", lambda x, w: F.relu(F.linear(x, w)), *rows)
    feed_forward()


def feed_forward():
    def row(x, hidden, out):
        width = x[-1]
        return [
            floats(*x, low=-1, high=1),
            floats(hidden, width, low=-1, high=1),
            floats(hidden),
            floats(out, hidden, low=-1, high=1),
            floats(out),
        ]

    def case_of(name, activation):
        case(name, lambda x, w, b, v, c: F.linear(activation(F.linear(x, w, b)), v, c), *rows)

    rows = [
        row((3, 4), 6, 5),
        row((4,), 6, 5),
        row((0, 4), 6, 5),
        row((2, 3, 4), 1, 1),
        row((2, 3, 4), 5, 1),
        row((3, 17), 67, 9),
        row((5, 3), 16, 8),
    ]
    gelu_tanh = functools.partial(F.gelu, approximate="tanh")
    case_of("feed_forward", lambda x: x)
    case_of("feed_forward/relu", F.relu)
    case_of("feed_forward/gelu", F.gelu)
    case_of("feed_forward/gelu_tanh", gelu_tanh)
    case_of("feed_forward/silu", F.silu)
    rows = [[floats(3, 4), floats(6, 4), floats(5, 6)]]
    case("feed_forward/no_bias", lambda x, w, v: F.linear(gelu_tanh(F.linear(x, w)), v), *rows)


# --- convolution


def convolutions():
    def layer(x, w):
        return [floats(*x), floats(*w), floats(w[0])]

    def conv2d(name, *shapes, **options):
        rows = [layer(*s) for s in shapes]
        case(f"conv2d{name}", lambda x, w, b: F.conv2d(x, w, b, **options), *rows)

    conv2d(
        "",
        ((2, 3, 5, 6), (4, 3, 3, 3)),
        ((3, 5, 4), (2, 3, 2, 3)),
        ((0, 3, 5, 5), (4, 3, 3, 3)),
        ((1, 1, 1, 1), (1, 1, 1, 1)),
        ((1, 3, 5, 9), (7, 3, 5, 1)),
        ((3, 2, 9, 9), (17, 2, 2, 2)),
    )
    shapes = [((2, 3, 4, 5), (5, 3, 3, 3)), ((1, 2, 1, 1), (3, 2, 3, 5))]
    conv2d("/padding", *shapes, padding=(1, 2))
    conv2d("/wide_padding", ((2, 1, 2, 3), (2, 1, 2, 1)), padding=(3, 4))
    shapes = [((2, 3, 6, 8), (4, 3, 3, 3)), ((1, 3, 7, 7), (2, 3, 1, 1))]
    conv2d("/stride", *shapes, stride=(2, 3), padding=(1, 0))
    shapes = [((2, 3, 6, 8), (4, 3, 3, 3))]
    conv2d("/dilation", *shapes, stride=(1, 2), padding=2, dilation=(2, 3))
    shapes = [((2, 4, 5, 5), (6, 2, 3, 3)), ((2, 2, 4, 5), (4, 1, 3, 2))]
    conv2d("/groups", *shapes, padding=1, groups=2)
    shapes = [((2, 5, 6, 7), (5, 1, 3, 3)), ((1, 5, 3, 3), (10, 1, 3, 3))]
    conv2d("/depthwise", *shapes, stride=2, padding=1, groups=5)
    rows = [[floats(2, 3, 4, 5), floats(4, 3, 3, 3)], [floats(2, 4, 3, 3), floats(5, 4, 1, 1)]]
    case("conv2d/no_bias", lambda x, w: F.conv2d(x, w, padding=1), *rows)

    def transposed(name, *shapes, **options):
        groups = options.get("groups", 1)
        rows = [[floats(*x), floats(*w), floats(w[1] * groups)] for x, w in shapes]
        name = f"conv_transpose2d{name}"
        case(name, lambda x, w, b: F.conv_transpose2d(x, w, b, **options), *rows)

    transposed(
        "",
        ((2, 3, 4, 5), (3, 4, 3, 3)),
        ((3, 3, 4), (3, 2, 2, 3)),
        ((0, 3, 4, 4), (3, 4, 3, 3)),
        ((1, 1, 1, 1), (1, 1, 1, 1)),
        ((1, 3, 5, 9), (3, 7, 2, 3)),
    )
    shapes = [((2, 3, 3, 4), (3, 4, 3, 5)), ((1, 2, 4, 4), (2, 3, 3, 5))]
    transposed("/stride", *shapes, stride=(2, 3), padding=(1, 2), output_padding=(1, 2))
    transposed("/gaps", ((2, 3, 3, 2), (3, 2, 2, 1)), stride=3)
    shapes = [((2, 4, 4, 3), (4, 3, 3, 3))]
    transposed("/groups", *shapes, stride=2, padding=1, output_padding=2, groups=2, dilation=3)
    rows = [[floats(2, 3, 4, 5), floats(3, 2, 3, 3)]]
    case("conv_transpose2d/no_bias", lambda x, w: F.conv_transpose2d(x, w, padding=1), *rows)


# --- normalising


def norms():
    for name, f in dict(softmax=torch.softmax, log_softmax=torch.log_softmax).items():
        shapes = [(4, 9), (), (0, 5), (3, 0), (5, 1), (3, 67), (2, 3, 4)]
        rows = [[floats(*s)] for s in shapes] + [[floats(3, 67, low=-300, high=300)]]
        case(name, lambda x: f(x, -1), *rows)
        rows = [[floats(*s)] for s in [(4, 9), (67, 3), (1, 5), (0, 5)]]
        case(f"{name}/first", lambda x: f(x, 0), *rows)
        case(f"{name}/middle", lambda x: f(x, 1), [floats(2, 5, 3)], [floats(2, 67, 2)])
        rows = [
            [floats(4, 9), mask(4, 9)],
            [floats(2, 5), ints(2, 5, low=1, high=2, dtype=torch.bool)],
        ]
        hide = lambda x, m: f(x.masked_fill(m, -inf), -1)
        case(f"{name}/infinite", hide, *rows, gradient=False)
        rows = [[specials(3, 11)], [specials(4)], [specials(5)]]
        case(f"{name}/specials", lambda x: f(x, -1), *rows, gradient=False)

    plain = [[floats(*s)] for s in [(3, 5), (5,), (0, 5), (2, 2, 3), (3, 67)]]
    shapes = [(3, 5), (5,), (0, 5), (2, 2, 3), (3, 67), (2, 1)]

    def affine(parameters):
        return [[floats(*s)] + [floats(s[-1])] * parameters for s in shapes]

    def layer_norm(x, w=None, b=None, eps=1e-5):
        return F.layer_norm(x, x.shape[-1:], w, b, eps)

    def rms_norm(x, w=None, eps=1e-6):
        return F.rms_norm(x, x.shape[-1:], w, eps)

    case("layer_norm", layer_norm, *affine(2))
    case("layer_norm/weight", layer_norm, *affine(1))
    case("layer_norm/plain", lambda x: layer_norm(x, eps=0.01), *plain)
    case("layer_norm/far", layer_norm, [floats(3, 67, low=100, high=104)])
    case("rms_norm", rms_norm, *affine(1))
    case("rms_norm/plain", lambda x: rms_norm(x, eps=0.01), *plain)

    def batch_norm(x, w=None, b=None, eps=1e-5):
        return F.batch_norm(x, None, None, w, b, True, 0.1, eps)

    def running(x, m, v):
        m, v = m.clone(), v.clone()
        return F.batch_norm(x, m, v, training=True, momentum=0.3), m, v

    def channels(shapes, parameters):
        return [[floats(*s)] + [floats(s[1])] * parameters for s in shapes]

    def with_running(shape, parameters=0):
        c = shape[1]
        statistics = [frozen(floats(c)), frozen(floats(c, low=0.5, high=2))]
        return [floats(*shape)] + statistics + [floats(c)] * parameters

    shapes = [(5, 3), (4, 3, 5), (3, 2, 2, 3), (2, 3, 67), (0, 3, 2), (37, 5), (2, 2, 2, 2, 2)]
    case("batch_norm", batch_norm, *channels(shapes, 2))
    case("batch_norm/weight", lambda x, w: batch_norm(x, w), *channels(shapes, 1))
    case("batch_norm/plain", lambda x: batch_norm(x, eps=0.01), *channels(shapes, 0))
    case("batch_norm/far", batch_norm, [floats(3, 2, 67, low=100, high=104)])
    rows = [with_running(s) for s in [(5, 3), (4, 3, 5), (2, 3, 67)]]
    case("batch_norm/running", running, *rows, gradient=False)
    rows = [with_running(s, 2) for s in shapes + [(1, 3)]]
    case("batch_norm/evaluation", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), *rows)

    shapes = [(2, 6), (3, 6, 5), (2, 6, 2, 3), (1, 6, 67), (2, 6, 1, 35), (0, 6, 2)]
    case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), *channels(shapes, 2))
    case("group_norm/weight", lambda x, w: F.group_norm(x, 3, w), *channels(shapes, 1))
    case("group_norm/plain", lambda x: F.group_norm(x, 1, eps=0.01), *channels(shapes, 0))
    case("group_norm/far", lambda x: F.group_norm(x, 2), [floats(3, 4, 67, low=100, high=104)])


# --- pooling, resizing, borders


def planes(values):
    shapes = [(2, 3, 7, 9), (3, 5, 6), (0, 2, 4, 5), (1, 2, 9, 67)]
    return [[values(*s)] for s in shapes]


def pooling():
    rows = planes(distinct)
    variants = {
        "": dict(kernel_size=2),
        "/stride": dict(kernel_size=3, stride=2, padding=1),
        "/overlap": dict(kernel_size=3, stride=1, padding=1),
        "/dilation": dict(kernel_size=(2, 3), stride=(1, 2), padding=1, dilation=2),
        "/ceil": dict(kernel_size=3, stride=2, padding=1, ceil_mode=True),
        "/apart": dict(kernel_size=(1, 2), stride=(2, 3), ceil_mode=True),
    }
    indexed = "max_pool2d_with_indices"
    for suffix, options in variants.items():
        case(f"max_pool2d{suffix}", lambda x: F.max_pool2d(x, **options), *rows)
        pooled = lambda x: F.max_pool2d(x, **options, return_indices=True)
        case(f"{indexed}{suffix}", pooled, *rows)
    for stride in (1, 2, 3):
        pooled = lambda x: F.max_pool2d(x, 3, stride, return_indices=True)
        shapes = [(2, 3, 7, 9), (1, 2, 9, 67)]
        case(f"{indexed}/ties{stride}", pooled, *[[ties(*s)] for s in shapes])
        rows_of_specials = [[specials(*s)] for s in shapes]
        case(f"{indexed}/specials{stride}", pooled, *rows_of_specials, gradient=False)

    variants = {
        "": dict(kernel_size=2),
        "/padding": dict(kernel_size=3, stride=2, padding=1),
        "/without_padding": dict(kernel_size=3, stride=2, padding=1, count_include_pad=False),
        "/overlap": dict(kernel_size=(3, 2), stride=1, padding=(1, 0)),
        "/ceil": dict(kernel_size=3, stride=2, padding=1, ceil_mode=True),
        "/ceil_without_padding": dict(
            kernel_size=(2, 3), stride=3, padding=1, ceil_mode=True, count_include_pad=False
        ),
        "/divisor": dict(kernel_size=(2, 3), padding=1, divisor_override=5),
    }
    for suffix, options in variants.items():
        case(f"avg_pool2d{suffix}", lambda x: F.avg_pool2d(x, **options), *rows)

    for suffix, size in {"": (3, 2), "/global": 1, "/even": (1, 3), "/more": (11, 70)}.items():
        case(f"adaptive_avg_pool2d{suffix}", lambda x: F.adaptive_avg_pool2d(x, size), *rows)
        case(f"adaptive_max_pool2d{suffix}", lambda x: F.adaptive_max_pool2d(x, size), *rows)
        pooled = lambda x: F.adaptive_max_pool2d(x, size, return_indices=True)
        case(f"adaptive_{indexed}{suffix}", pooled, *rows)


def resizing():
    shapes = [(2, 3, 7, 9), (3, 1, 5, 6), (0, 2, 4, 5), (1, 2, 9, 67), (1, 1, 1, 1)]
    rows = [[floats(*s)] for s in shapes]
    bilinear = dict(mode="bilinear", align_corners=False)
    corners = dict(mode="bilinear", align_corners=True)
    variants = {
        "": dict(size=(11, 26)),
        "/down": dict(size=(5, 4)),
        "/scale": dict(scale_factor=2),
        "/odd_scale": dict(scale_factor=(1.7, 3.3)),
        "/bilinear": dict(size=(11, 26), **bilinear),
        "/bilinear_down": dict(size=(5, 4), **bilinear),
        "/bilinear_same": dict(size=(7, 9), **bilinear),
        "/bilinear_scale": dict(scale_factor=2, **bilinear),
        "/bilinear_odd_scale": dict(scale_factor=(1.7, 3.3), **bilinear),
        "/corners": dict(size=(11, 26), **corners),
        "/corners_down": dict(size=(1, 4), **corners),
        "/corners_scale": dict(scale_factor=2.5, **corners),
    }

    for suffix, options in variants.items():
        case(f"interpolate{suffix}", lambda x: F.interpolate(x, **options), *rows)


def borders():
    def padded(x, padding, mode):
        # PyTorch pads planes in these modes, and lets nothing but the batch be empty.
        if x.dim() == 4:
            return F.pad(x, padding, mode)
        return padded(x.unsqueeze(x.dim() - 2), padding, mode).squeeze(x.dim() - 2)

    rows = [[floats(*s)] for s in [(2, 3, 7, 9), (5, 6), (0, 4, 5), (2, 9, 67)]]
    case("pad", lambda x: F.pad(x, (1, 2, 3, 0)), *rows)
    last = [[floats(5)], [floats(0)], [floats(3, 67)], [floats(2, 1)]]
    case("pad/last", lambda x: F.pad(x, (2, 1), value=1.5), *last)
    case("pad/crop", lambda x: F.pad(x, (-1, 2, 3, -2), value=-2), *rows)
    case("pad/to_nothing", lambda x: F.pad(x, (-1, -3)), [floats(3, 4)])
    variants = {
        "reflect": (1, 4, 3, 0),
        "reflect_crop": (2, -3, -1, 3),
        "replicate": (1, 6, 3, 0),
        "replicate_crop": (2, -3, -1, 5),
        "circular": (1, 5, 3, 0),
        "circular_crop": (2, -1, -1, 2),
    }
    for name, padding in variants.items():
        case(f"pad/{name}", lambda x: padded(x, padding, name.removesuffix("_crop")), *rows)
    whole = [ints(3, 67, low=-9, high=9)], [ints(5, high=99, dtype=torch.uint8)]
    case("pad/ints", lambda x: F.pad(x, (1, 2), value=7), *whole, [mask(2, 3)], gradient=False)

    rows = [[floats(3, 4)], [floats(5)], [floats(0, 3)], [floats(3, 67)]]
    case("flip", lambda x: x.flip(-1), *rows)
    rows = [[floats(3, 4)], [floats(5, 1)], [floats(2, 0)], [floats(3, 67)]]
    case("flip/first", lambda x: x.flip(0), *rows)
    rows = [[floats(2, 3, 4)], [floats(2, 0, 1)], [floats(3, 2, 67)]]
    case("flip/two", lambda x: x.flip(0, -1), *rows)
    case("flip/none", lambda x: x.flip([]), [floats(3, 4)], [floats()])
    case("flip/ints", lambda x: x.flip(0), *whole, [mask(9)], gradient=False)


# --- attention


def heads(batch, heads, groups, queries, keys, width):
    kv = floats(batch, groups, keys, width)
    return [floats(batch, heads, queries, width), kv, kv]


def attention():
    def sdpa(q, k, v, m=None, causal=False, scale=None):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=m, is_causal=causal, scale=scale, enable_gqa=True
        )

    name = "scaled_dot_product_attention"
    sizes = [
        (2, 2, 2, 5, 7, 4),
        (1, 4, 2, 3, 3, 8),
        (1, 3, 1, 2, 5, 3),
        (0, 2, 2, 3, 3, 4),
        (1, 1, 1, 1, 1, 1),
        (1, 1, 1, 3, 67, 5),
    ]
    case(name, sdpa, *[heads(*s) for s in sizes])
    sizes = [(2, 2, 1, 5, 5, 4), (1, 1, 1, 3, 7, 4), (1, 1, 1, 7, 3, 4), (1, 1, 1, 35, 35, 2)]
    case(f"{name}/causal", lambda *x: sdpa(*x, causal=True), *[heads(*s) for s in sizes])
    case(f"{name}/scale", lambda *x: sdpa(*x, scale=0.25), heads(1, 2, 2, 3, 4, 4))
    case(
        f"{name}/mask",
        sdpa,
        heads(2, 2, 2, 3, 4, 4) + [mask(2, 2, 3, 4)],
        heads(2, 2, 1, 3, 4, 4) + [mask(2, 1, 1, 4)],
        heads(1, 2, 2, 3, 4, 4) + [mask(3, 4)],
        heads(1, 2, 2, 3, 4, 4) + [ints(3, 4, high=1, dtype=torch.bool)],
    )
    case(
        f"{name}/bias",
        sdpa,
        heads(2, 2, 2, 3, 4, 4) + [frozen(floats(2, 2, 3, 4))],
        heads(2, 2, 2, 3, 4, 4) + [frozen(floats(3, 4))],
        heads(2, 2, 1, 3, 4, 4) + [frozen(floats(2, 1, 4))],
    )

    def rotary(x, base=10000.0, offset=0):
        half = x.size(-1) // 2
        angles = torch.outer(
            torch.arange(x.size(-2), dtype=torch.float64) + offset,
            base ** (-torch.arange(half, dtype=torch.float64) / half),
        )
        a, b = x[..., :half], x[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    rows = [[floats(*s)] for s in [(5, 4), (2, 3, 7, 6), (1, 2), (2, 0, 4), (3, 66)]]
    case("rotary_embedding", rotary, *rows)
    case("rotary_embedding/offset", lambda x: rotary(x, 500.0, 9), *rows)


# --- losses


def losses():
    variants = {
        "": {},
        "/sum": dict(reduction="sum"),
        "/ignore": dict(ignore_index=2),
        "/smoothing": dict(label_smoothing=0.25),
        "/everything": dict(ignore_index=2, label_smoothing=0.25, reduction="sum"),
        "/smoothing_ignore": dict(ignore_index=2, label_smoothing=0.25),
        "/none": dict(ignore_index=2, label_smoothing=0.25, reduction="none"),
    }
    for suffix, options in variants.items():
        case(
            f"cross_entropy{suffix}",
            lambda x, y: F.cross_entropy(x, y, **options),
            [floats(4, 5), ints(4, high=5)],
            [floats(1, 3), ints(1, high=2)],
            [floats(0, 3), ints(0, high=3)],
            [floats(7, 67, low=-8, high=8), ints(7, high=9)],
        )
        if suffix == "/none":
            continue
        case(
            f"linear_cross_entropy{suffix}",
            lambda x, w, y: F.cross_entropy(F.linear(x, w), y, **options),
            [floats(4, 3), floats(5, 3), ints(4, high=5)],
            [floats(1, 2), floats(3, 2), ints(1, high=2)],
            [floats(0, 2), floats(3, 2), ints(0, high=3)],
            [floats(7, 9), floats(67, 9), ints(7, high=9)],
        )
    ignored = [floats(3, 5), ints(3, low=-100, high=-99)]
    case("cross_entropy/all_ignored", F.cross_entropy, ignored, gradient=False)
    case(
        "cross_entropy/no_gradient_from_ignored",
        lambda x, y: F.cross_entropy(x, y, reduction="sum"),
        ignored,
    )
    pairs = [[floats(*s), floats(*s)] for s in [(3, 4), (), (0, 3), (3, 67)]]
    case("mse_loss", F.mse_loss, *pairs)
    case("mse_loss/sum", lambda x, y: F.mse_loss(x, y, reduction="sum"), *pairs)
    case("mse_loss/none", lambda x, y: F.mse_loss(x, y, reduction="none"), *pairs)


def checkpoints():
    shapes = [((3, 4), (4,)), ((0, 4), (4,)), ((), (1,)), ((3, 67), (1, 67))]
    rows = [[floats(*a), floats(*b)] for a, b in shapes]
    case("checkpoint", lambda a, b: torch.tanh(a * b) * a, *rows)
    case("checkpoint/nested", lambda a, b: torch.tanh(torch.exp(b * a)), *rows)


# --- the dtype that two operands meet in: positions in `dtypes`, [left, right]


def promotion():
    dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    dtypes += [torch.int64, torch.int32, torch.uint8, torch.bool]

    def table(right):
        return torch.tensor(
            [[dtypes.index((torch.ones(2, dtype=a) * right(b)).dtype) for b in dtypes] for a in dtypes]
        )

    recorded["promotion/tensors"] = table(lambda b: torch.ones(2, dtype=b))
    recorded["promotion/scalars"] = table(lambda b: torch.ones((), dtype=b))
    numbers = [[dtypes.index((torch.ones(2, dtype=a) * n).dtype) for n in (2, 2.5)] for a in dtypes]
    recorded["promotion/numbers"] = torch.tensor(numbers)


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the variance of nothing is asked on purpose
    for family in (
        create,
        dropout,
        convert,
        shapes,
        orders_and_parts,
        joins,
        arithmetic,
        compare,
        unaries,
        reductions,
        indexing,
        products,
        convolutions,
        norms,
        pooling,
        resizing,
        borders,
        attention,
        losses,
        checkpoints,
        promotion,
    ):
        family()
    path = pathlib.Path(__file__).with_name("ops.safetensors")
    save_file(recorded, path)
    print(f"{path}: {len(recorded)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
