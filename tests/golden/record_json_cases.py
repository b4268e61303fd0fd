"""Records examples of op cases in JSON, tests/golden/json_cases.json, with PyTorch 2.15.

    python tests/golden/record_json_cases.py

tests/cases/README.md documents the file. Each row of EXAMPLES is an op of torch, of
torch.nn.functional or of Tensor, its inputs and its arguments. Every op that tests/cases/json/ names
needs a row; the recorder fails if an op there has none.
"""

import json
import pathlib
import re

import torch
import torch.nn.functional as F

FOLDER = pathlib.Path(__file__).parent


def R(*shape):
    """Normally distributed numbers."""
    return torch.randn(shape, dtype=torch.float64)


def P(*shape):
    """Numbers between 0.125 and 0.875."""
    return torch.rand(shape, dtype=torch.float64) * 0.75 + 0.125


def Z(low, high, *shape):
    """Integers."""
    return torch.randint(low, high, shape)


def B(*shape):
    return torch.rand(shape) < 0.5


T = lambda x: x.transpose(0, 1)  # another layout

EXAMPLES = [(op, [R(3, 5)], {}) for op in (
    "floor ceil round trunc frac sign sin cos tan atan sinh cosh asinh exp2 expm1 erf erfc square "
    "reciprocal logical_not isnan isinf isfinite selu logsigmoid mish hardswish hardsigmoid relu6 "
    "tanhshrink neg abs exp tanh sigmoid relu silu softsign gelu nan_to_num leaky_relu elu celu "
    "softplus hardtanh hardshrink softshrink contiguous clone sum mean var max min sort "
    "argsort zeros_like ones_like tril triu squeeze flatten").split()]
EXAMPLES += [(op, [P(3, 5)], {}) for op in (
    "asin acos atanh log2 log10 log1p erfinv lgamma digamma log sqrt rsqrt").split()]
EXAMPLES += [(op, [R(3, 5), R(5)], {}) for op in (
    "add sub mul div eq ne lt le gt ge maximum minimum floor_divide fmod remainder atan2 "
    "logical_and logical_or logical_xor").split()]
EXAMPLES += [(op, [R(3, 5)], {"other": 0.5}) for op in "add sub mul div eq ne lt le gt ge".split()]
EXAMPLES += [(op, [Z(0, 9, 7), Z(0, 9, 7)], {}) for op in
             "bitwise_and bitwise_or bitwise_xor add mul".split()]
EXAMPLES += [
    ("acosh", [P(3, 5) + 1], {}),
    ("bitwise_not", [Z(0, 9, 7)], {}),
    ("sin", [T(R(3, 5))], {}),
    ("gelu", [R(7)], {"approximate": "tanh"}),
    ("nan_to_num", [torch.tensor([1, float("nan"), float("inf")])], {"nan": 2.0, "posinf": 3.0}),
    ("clamp", [R(3, 5)], {"min": -0.5, "max": 0.75}),
    ("add", [R(3, 5), R(5)], {"alpha": 2}),
    ("sub", [R(3, 5), R(5)], {"alpha": 2}),
    ("prelu", [R(2, 3, 4), R(3)], {}),
    ("pow", [P(3, 5), R(5)], {}),
    ("pow", [R(3, 5)], {"exponent": 3}),
    ("lerp", [R(3, 5), R(3, 5), R(5)], {}),
    ("lerp", [R(3, 5), R(3, 5)], {"weight": 0.25}),
    ("addcmul", [R(3, 5), R(3, 5), R(5)], {"value": 0.5}),
    ("addcdiv", [R(3, 5), R(3, 5), P(5)], {"value": 0.5}),
    ("where", [B(3, 5), R(3, 5), R(5)], {}),
    ("masked_fill", [R(3, 5), B(5)], {"value": -1.5}),
    ("leaky_relu", [R(7)], {"negative_slope": 0.2}),
    ("elu", [R(7)], {"alpha": 0.5}),
    ("celu", [R(7)], {"alpha": 0.5}),
    ("softplus", [R(7)], {"beta": 2, "threshold": 1}),
    ("hardtanh", [R(7)], {"min_val": -0.5, "max_val": 0.25}),
    ("hardshrink", [R(7)], {"lambd": 0.25}),
    ("softshrink", [R(7)], {"lambd": 0.25}),
    ("threshold", [R(7)], {"threshold": 0.25, "value": 3.0}),
    ("glu", [R(3, 4)], {"dim": 1}),
    ("softmax", [R(3, 5)], {"dim": 0}),
    ("log_softmax", [R(3, 5)], {"dim": 0}),
    ("view", [R(3, 4)], {"size": [2, 6]}),
    ("reshape", [R(3, 4)], {"shape": [2, -1]}),
    ("flatten", [R(2, 3, 4)], {"start_dim": 1}),
    ("transpose", [R(2, 3, 4)], {"dim0": 0, "dim1": 2}),
    ("permute", [R(2, 3, 4)], {"dims": [2, 0, 1]}),
    ("expand", [R(3, 1)], {"size": [2, 3, 4]}),
    ("squeeze", [R(1, 3, 1)], {"dim": 2}),
    ("unsqueeze", [R(3)], {"dim": 0}),
    ("narrow", [R(5, 2)], {"dim": 0, "start": 1, "length": 3}),
    ("select", [R(5, 2)], {"dim": 0, "index": -2}),
    ("split", [R(5, 2)], {"split_size_or_sections": 2}),
    ("split", [R(2, 5)], {"split_size_or_sections": [1, 4], "dim": 1}),
    ("chunk", [R(5, 2)], {"chunks": 2}),
    ("cat", [[R(2, 3), R(1, 3)]], {}),
    ("cat", [[R(2, 3), R(2, 1)]], {"dim": 1}),
    ("stack", [[R(2, 3), R(2, 3)]], {"dim": 1}),
    ("to", [R(3)], {"dtype": "float32"}),
    ("flip", [R(3, 4)], {"dims": [1]}),
    ("pad", [R(3, 4)], {"pad": [1, 2], "value": 0.5}),
    ("pad", [R(1, 3, 4)], {"pad": [1, 2], "mode": "reflect"}),
    ("zeros", [], {"size": [2, 3]}),
    ("ones", [], {"size": [2, 3], "dtype": "int64"}),
    ("full", [], {"size": [2], "fill_value": 3}),
    ("arange", [], {"end": 5}),
    ("arange", [], {"start": 0.5, "end": 3, "step": 0.75, "dtype": "float64"}),
    ("full_like", [R(3)], {"fill_value": 2.5}),
    ("tril", [R(3, 4)], {"diagonal": 1}),
    ("triu", [R(3, 4)], {"diagonal": -1}),
    ("one_hot", [Z(0, 4, 5)], {"num_classes": 4}),
    ("gather", [R(3, 4), Z(0, 4, 3, 2)], {"dim": 1}),
    ("index_select", [R(3, 4), Z(0, 3, 5)], {"dim": 0}),
    ("scatter_add", [R(3, 4), Z(0, 3, 2, 4), R(2, 4)], {"dim": 0}),
    ("embedding", [Z(0, 5, 2, 3), R(5, 4)], {"padding_idx": 1}),
    ("sum", [R(3, 4)], {"dim": 1, "keepdim": True}),
    ("mean", [R(3, 4, 2)], {"dim": [0, 2]}),
    ("var", [R(3, 4)], {"dim": 0, "correction": 0}),
    ("argmax", [R(3, 4)], {"dim": 1}),
    ("argmin", [R(3, 4)], {"dim": 0, "keepdim": True}),
    ("cumsum", [R(3, 4)], {"dim": 1}),
    ("cumprod", [R(3, 4)], {"dim": 0}),
    ("topk", [R(3, 5)], {"k": 2, "largest": False}),
    ("sort", [R(3, 5)], {"dim": 0, "descending": True}),
    ("matmul", [R(2, 3, 4), R(4, 5)], {}),
    ("linear", [R(2, 4), R(3, 4), R(3)], {}),
    ("linear", [R(2, 4), R(3, 4)], {}),
    ("conv2d", [R(1, 4, 5, 6), R(4, 2, 3, 2), R(4)],
     {"stride": [2, 1], "padding": 1, "groups": 2}),
    ("conv_transpose2d", [R(1, 2, 3, 3), R(2, 3, 2, 2), None],
     {"stride": 2, "output_padding": 1}),
    ("scaled_dot_product_attention", [R(1, 2, 3, 4), R(1, 2, 5, 4), R(1, 2, 5, 4), B(3, 5)], {}),
    ("scaled_dot_product_attention", [R(1, 2, 3, 4), R(1, 2, 3, 4), R(1, 2, 3, 4)],
     {"is_causal": True, "scale": 0.25}),
    ("layer_norm", [R(3, 5), R(5), R(5)], {"normalized_shape": [5]}),
    ("rms_norm", [R(3, 5), R(5)], {"normalized_shape": [5], "eps": 1e-3}),
    ("batch_norm", [R(4, 3), R(3), P(3), R(3), R(3)], {}),
    ("batch_norm", [R(4, 3), None, None], {"training": True}),
    ("group_norm", [R(2, 4, 3), R(4), R(4)], {"num_groups": 2}),
    ("max_pool2d", [R(1, 2, 5, 5)], {"kernel_size": 2, "stride": 1}),
    ("avg_pool2d", [R(1, 2, 5, 5)],
     {"kernel_size": [3, 2], "padding": 1, "count_include_pad": False}),
    ("adaptive_avg_pool2d", [R(1, 2, 5, 5)], {"output_size": [2, 3]}),
    ("adaptive_max_pool2d", [R(1, 2, 5, 5)], {"output_size": 2}),
    ("interpolate", [R(1, 2, 3, 4)],
     {"size": [5, 7], "mode": "bilinear", "align_corners": True}),
    ("interpolate", [R(1, 2, 3, 4)], {"scale_factor": 2}),
    ("mse_loss", [R(3, 4), R(3, 4)], {"reduction": "sum"}),
    ("cross_entropy", [R(4, 5), Z(0, 5, 4)], {"label_smoothing": 0.1}),
    ("binary_cross_entropy", [P(3, 4), P(3, 4)], {"reduction": "none"}),
    ("binary_cross_entropy_with_logits", [R(3, 4), P(3, 4), R(4), P(4)], {}),
]

# Inputs without a gradient in PyTorch or in Axle.
NOT_DIFFERENTIABLE = {"binary_cross_entropy": [1], "binary_cross_entropy_with_logits": [1, 2, 3],
                      "batch_norm": [1, 2], "floor_divide": [0, 1]}

# PyTorch's slope of hardsigmoid in float64 is 1/6 rounded to float32, and its trigamma has an error of
# up to 1e-9.
TOLERANCES = {"hardsigmoid": 1e-7, "digamma": 1e-8}


def function(op):
    for place in (F, torch, torch.Tensor):
        if hasattr(place, op):
            return getattr(place, op)
    raise ValueError(f"PyTorch has no {op}")


def element(value):
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return "nan" if value != value else value


def written(x):
    """A tensor as JSON; strides only if it is not contiguous."""
    if x is None:
        return None
    row = {"dtype": str(x.dtype).removeprefix("torch."), "shape": list(x.shape)}
    if not x.is_contiguous():
        row["strides"] = list(x.stride())
        memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).tolist()
    else:
        memory = x.flatten().tolist()
    row["data"] = [element(value) for value in memory]
    return row


def record(op, inputs, arguments):
    flat = [x for entry in inputs for x in (entry if isinstance(entry, list) else [entry])]
    leaves = [x for i, x in enumerate(flat) if x is not None and x.is_floating_point()
              and i not in NOT_DIFFERENTIABLE.get(op, [])]
    case = {"op": op, "inputs": [[written(x) for x in entry] if isinstance(entry, list)
                                 else written(entry) for entry in inputs]}
    if op in TOLERANCES:
        case["tolerance"] = TOLERANCES[op]
    if arguments:
        case["arguments"] = arguments
    for x in leaves:
        x.requires_grad_()
    kwargs = {k: getattr(torch, v) if k == "dtype" else v for k, v in arguments.items()}
    if op in ("batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits"):
        names = {"batch_norm": ["running_mean", "running_var", "weight", "bias"],
                 "binary_cross_entropy": ["target", "weight"],
                 "binary_cross_entropy_with_logits": ["target", "weight", "pos_weight"]}[op]
        kwargs.update(zip(names, inputs[1:]))
        y = function(op)(inputs[0], **kwargs)
    elif op == "scaled_dot_product_attention" and len(inputs) > 3:
        y = F.scaled_dot_product_attention(*inputs[:3], attn_mask=inputs[3], **kwargs)
    elif op == "rms_norm":
        y = F.rms_norm(inputs[0], weight=inputs[1], **kwargs)
    elif op == "layer_norm":
        y = F.layer_norm(inputs[0], weight=inputs[1], bias=inputs[2], **kwargs)
    elif op == "group_norm":
        y = F.group_norm(inputs[0], weight=inputs[1], bias=inputs[2], **kwargs)
    elif op in ("gather", "index_select", "scatter_add"):
        y = function(op)(inputs[0], kwargs["dim"], *inputs[1:])
    elif op in ("expand", "view"):
        y = getattr(inputs[0], op)(kwargs["size"])
    elif op == "var":
        y = torch.var(inputs[0], **{"dim": None, **kwargs})
    elif op == "clamp" or op == "pow" or op == "lerp" or "other" in kwargs:
        y = function(op)(*inputs, *[kwargs.pop(k) for k in ("other", "exponent", "weight")
                                    if k in kwargs], **kwargs)
    else:
        y = function(op)(*inputs, **kwargs)
    outputs = [y] if isinstance(y, torch.Tensor) else list(y)
    case["outputs"] = [written(t.detach().contiguous()) for t in outputs]
    roots = [t for t in outputs if t.requires_grad]
    if roots:
        weights = [R(*t.shape).to(t.dtype) for t in roots]
        grads = torch.autograd.grad(roots, leaves, weights, allow_unused=True)
        weight = iter(weights)
        case["output_gradients"] = [written(next(weight)) if t.requires_grad else None
                                    for t in outputs]
        by_leaf = {id(x): torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)}
        case["gradients"] = [written(by_leaf[id(x)].detach().contiguous())
                             if id(x) in by_leaf else None for x in flat]
    return case


def main():
    torch.manual_seed(0)
    sources = sorted((FOLDER.parent / "cases/json").glob("*.cpp"))
    text = "".join(path.read_text() for path in sources if path.name != "call.cpp")
    named = set(re.findall(r'ops\["(\w+)"\]|\{"(\w+)", \w+[,}]', text))
    missing = {a or b for a, b in named} - {op for op, _, _ in EXAMPLES}
    assert not missing, f"no example of {sorted(missing)}"
    cases = [record(*example) for example in EXAMPLES]
    head = f'{{"source": "PyTorch {torch.__version__.split("+")[0]}", "cases": [\n'
    (FOLDER / "json_cases.json").write_text(
        head + ",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
