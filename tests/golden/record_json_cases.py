"""Records examples of op cases in JSON, tests/golden/json_cases.json, with PyTorch 2.15.

    python tests/golden/record_json_cases.py

tests/cases/README.md documents the file. Each row of EXAMPLES is an op of torch, of
torch.nn.functional or of Tensor, its inputs and its arguments. Every op that tests/cases/json/ names
needs a row; the recorder fails if an op there has none. The rows are in json_examples.py,
json_network_examples.py, json_linalg_examples.py and json_spatial_examples.py.
"""

import json
import pathlib
import re

import torch
import torch.nn.functional as F

import json_examples
import json_linalg_examples
import json_network_examples
import json_spatial_examples
import references
from json_examples import R

FOLDER = pathlib.Path(__file__).parent
EXAMPLES = (json_examples.EXAMPLES + json_network_examples.EXAMPLES +
            json_linalg_examples.EXAMPLES + json_spatial_examples.EXAMPLES + json_examples.LAST)


# The indices of inputs that have no gradient in PyTorch or in Axle.
NOT_DIFFERENTIABLE = {"binary_cross_entropy": [1], "binary_cross_entropy_with_logits": [1, 2, 3],
                      "batch_norm": [1, 2], "floor_divide": [0, 1]}

# PyTorch's slope of hardsigmoid in float64 is 1/6 rounded to float32, and its trigamma has an error of
# up to 1e-9.
TOLERANCES = {"hardsigmoid": 1e-7, "digamma": 1e-8}


# The names of inputs after the first, for functions with other arguments between them.
INPUTS = {
    "batch_norm": "running_mean running_var weight bias", "bincount": "weights",
    "binary_cross_entropy": "target weight",
    "binary_cross_entropy_with_logits": "target weight pos_weight", "clamp": "min max",
    "cross_entropy": "target weight", "diagonal_scatter": "src", "diff": "prepend append",
    "gather": "index", "group_norm": "weight bias", "huber_loss": "target weight",
    "index_add": "index source", "index_copy": "index source", "index_fill": "index value",
    "index_reduce": "index source", "index_select": "index", "l1_loss": "target weight",
    "layer_norm": "weight bias", "linear_cross_entropy": "linear_weight target",
    "mse_loss": "target weight", "multi_margin_loss": "target weight",
    "multilabel_soft_margin_loss": "target weight", "nanquantile": "q", "nll_loss": "target weight",
    "put": "index source", "quantile": "q", "repeat_interleave": "repeats", "rms_norm": "weight",
    "scaled_dot_product_attention": "key value attn_mask", "scatter": "index src",
    "scatter_": "index src", "scatter_add": "index src", "scatter_reduce": "index src",
    "select_scatter": "src", "slice_scatter": "src", "take_along_dim": "indices",
}


def json_index(x, indices, text=None):
    """Returns the Python index that a case describes."""
    if text is None:
        return tuple(slice(None) if i is None else i for i in indices)
    tensors = iter(indices)
    python = {"...": ..., None: None}
    return tuple(next(tensors) if i == "tensor" else i if isinstance(i, int) else
                 python[i] if i in python else
                 slice(*[int(part) if part else None for part in i.split(":")]) for i in text)


# Calls that differ from f(*inputs, **arguments).
CALLS = {
    "einsum": lambda x, equation: torch.einsum(equation, *x),
    "index": lambda x, indices=(), index=None: x[json_index(x, indices, index)],
    "__getitem__": lambda x, indices=(), index=None: x[json_index(x, indices, index)],
    "index_put": lambda x, i, values, **kw: x.index_put(json_index(x, i), values, **kw),
    "expand": lambda x, size: x.expand(size),
    "view": lambda x, size: x.view(size),
    "slice": lambda x, dim=0, start=0, end=2**63 - 1, step=1:
        torch.ops.aten.slice(x, dim, start, end, step),
    "where": lambda c, *x, **kw: torch.where(
        c, *([kw["input"]] if "input" in kw else []), *x, *([kw["other"]] if "other" in kw else [])),
    "isin": lambda x, *y, **kw: torch.isin(x, *y, **kw),
    "var": lambda x, **kw: torch.var(x, **(kw if "unbiased" in kw else {"dim": None, **kw})),
    "searchsorted": lambda s, *x, **kw: torch.searchsorted(
        s, x[0] if x else kw.pop("input"), sorter=x[1] if len(x) > 1 else None, **kw),
    "bucketize": lambda *x, **kw: torch.bucketize(
        *([kw.pop("input")] if len(x) == 1 else []), *x, **kw),
    "gaussian_nll_loss": lambda *x, **kw: F.gaussian_nll_loss(
        *x, *([kw.pop("var")] if "var" in kw else []), **kw),
    "sigmoid_focal_loss": references.sigmoid_focal_loss,
}
for op in "block_diag broadcast_tensors cartesian_prod chain_matmul".split():
    CALLS[op] = lambda x, f=getattr(torch, op): f(*x)
for op in [f"{name}max_pool{n}d_with_indices" for name in ("adaptive_", "") for n in (1, 2, 3)]:
    CALLS[op] = lambda x, f=getattr(F, op), **kw: f(x, **kw)


def function(op):
    place, _, name = op.rpartition(".")
    places = {"": (F, torch, torch.Tensor, torch.linalg, torch.special), "F": (F,),
              "linalg": (torch.linalg,), "Tensor": (torch.Tensor,)}[place]
    for module in places:
        if callable(getattr(module, name, None)):
            return getattr(module, name)
    raise ValueError(f"PyTorch has no {op}")


def call(op, inputs, kwargs):
    if op in CALLS:
        return CALLS[op](*inputs, **kwargs)
    f = function(op)
    if op in INPUTS:
        # If the quantile or the repeats are a number, it is an argument.
        names = INPUTS[op].split()
        return f(inputs[0], **dict(zip(names, inputs[1:])), **kwargs)
    if "self" in kwargs:
        return f(kwargs.pop("self"), *inputs, **kwargs)
    numbers = [kwargs.pop(k) for k in ("other", "exponent", "indices_or_sections") if k in kwargs]
    if op == "lerp" and "weight" in kwargs:
        numbers = [kwargs.pop("weight")]
    return f(*inputs, *numbers, **kwargs)


def element(value):
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return "nan" if isinstance(value, float) and value != value else value


def written(x):
    """Returns a tensor as JSON, with strides only if it is not contiguous."""
    if x is None:
        return None
    row = {"dtype": str(x.dtype).removeprefix("torch."), "shape": list(x.shape)}
    if not x.is_contiguous():
        row["strides"] = list(x.stride())
        if x.storage_offset() != 0:
            row["offset"] = x.storage_offset()
        memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).tolist()
    else:
        memory = x.flatten().tolist()
    row["data"] = [element(value) for value in memory]
    return row


def record(op, inputs, arguments):
    flat = [x for entry in inputs for x in (entry if isinstance(entry, list) else [entry])]
    leaves = [x for i, x in enumerate(flat) if x is not None and x.is_floating_point()
              and not hasattr(x, "constant") and i not in NOT_DIFFERENTIABLE.get(op, [])]
    case = {"op": op, "inputs": [[written(x) for x in entry] if isinstance(entry, list)
                                 else written(entry) for entry in inputs]}
    if op in TOLERANCES:
        case["tolerance"] = TOLERANCES[op]
    if arguments:
        case["arguments"] = {k: element(v) for k, v in arguments.items()}
    for x in leaves:
        x.requires_grad_()
    kwargs = {k: getattr(torch, v) if k == "dtype" else v for k, v in arguments.items()}
    if isinstance(kwargs.get("q"), list):
        kwargs["q"] = torch.tensor(kwargs["q"], dtype=torch.float64)
    y = call(op, inputs, kwargs)
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
    sources = sorted((FOLDER.parent / "cases/json").glob("*.cpp"))
    text = "".join(path.read_text() for path in sources if path.name != "call.cpp")
    named = set(re.findall(r'ops\["([\w.]+)"\]|\{"(\w+)", (?!true|false)\w+[,}]', text))
    shown = {name for op, _, _ in EXAMPLES for name in (op, op.rpartition(".")[2])}
    missing = {a or b for a, b in named} - shown
    assert not missing, f"no example of {sorted(missing)}"
    cases = [record(*example) for example in EXAMPLES]
    head = f'{{"source": "PyTorch {torch.__version__.split("+")[0]}", "cases": [\n'
    (FOLDER / "json_cases.json").write_text(
        head + ",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
