"""Records results of small layers of PyTorch, for tests/nn: writes layers.safetensors.

All values are float64. For each case, the file contains the weights before the call ("state."), the
arguments ("in."), the results ("out."), and the gradients ("grad.", "grad_in.") of the sum of the
results, each multiplied by a recorded factor ("factor."). "after." is the state after the call.
"""

import copy
import math
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrizations

torch.set_default_dtype(torch.float64)
torch.manual_seed(23)
record = {}


def keep(prefix, tensors):
    for name, tensor in tensors.items():
        record[f"{prefix}.{name}"] = tensor.detach().clone().contiguous()


def case(name, layer, *args, training=True, **named):
    layer.train(training)
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(0, 0.8)
    inputs = {chr(ord("a") + i): x for i, x in enumerate(args)} | named
    for x in inputs.values():
        if x.is_floating_point():
            x.requires_grad_()
    keep(f"{name}.in", inputs)
    keep(f"{name}.state", layer.state_dict())
    y = layer(*args, **named)
    factor = torch.randn_like(y)
    keep(name, {"out.y": y, "factor.y": factor})
    if any(x.requires_grad for x in inputs.values()) or list(layer.parameters()):
        (y * factor).sum().backward()
    keep(f"{name}.grad", {key: p.grad for key, p in layer.named_parameters()})
    keep(f"{name}.grad_in", {key: x.grad for key, x in inputs.items() if x.grad is not None})
    keep(f"{name}.after", layer.state_dict())


rand = torch.randn
case("bilinear", nn.Bilinear(2, 3, 4), rand(2, 5, 2), rand(2, 5, 3))
case("bilinear_no_bias", nn.Bilinear(2, 3, 4, bias=False), rand(2), rand(3))
case("cosine", nn.CosineSimilarity(), rand(3, 4), rand(3, 4))
case("cosine_dim", nn.CosineSimilarity(-1, eps=0.5), rand(3, 4), rand(1, 4))
for p in 0.0, 1.0, 2.0, 3.5, math.inf:
    case(f"distance_{p:g}", nn.PairwiseDistance(p, keepdim=p == 1), rand(3, 4), rand(3, 4))
case("layer_norm", nn.LayerNorm((3, 4)), rand(2, 5, 3, 4))
case("layer_norm_plain", nn.LayerNorm((3, 4), eps=1e-2, elementwise_affine=False), rand(3, 4))
case("response", nn.LocalResponseNorm(3), rand(2, 5, 3))
case("response_even", nn.LocalResponseNorm(4, alpha=0.3, beta=0.6, k=2), rand(2, 5, 2, 3))

case("instance1d", nn.InstanceNorm1d(3), rand(2, 3, 5))
case("instance2d", nn.InstanceNorm2d(3, affine=True), rand(2, 3, 4, 2))
case("instance3d", nn.InstanceNorm3d(3, affine=True, eps=1e-2), rand(3, 2, 2, 3))
tracked = nn.InstanceNorm2d(3, affine=True, track_running_stats=True, momentum=0.3)
case("instance_tracked", tracked, 2 * rand(2, 3, 4, 2) + 1)
tracked.zero_grad()
case("instance_evaluated", tracked, rand(2, 3, 4, 2), training=False)

flat = torch.tensor([1, 2, 4, 5, 4, 3, 2, 6])
offsets = torch.tensor([0, 3, 3, 5, 8])
for mode in "sum", "mean", "max":
    case(f"bag_{mode}", nn.EmbeddingBag(7, 3, mode=mode), flat.view(2, 4).clone())
    case(f"bag_{mode}_offsets", nn.EmbeddingBag(7, 3, mode=mode), flat, offsets)
    case(f"bag_{mode}_padding", nn.EmbeddingBag(7, 3, mode=mode, padding_idx=4), flat, offsets)
    rows = torch.tensor([[4, 4, 4], [1, 4, 2], [0, 1, 1]])
    case(f"bag_{mode}_padded_rows", nn.EmbeddingBag(7, 3, mode=mode, padding_idx=4), rows)
last = nn.EmbeddingBag(7, 3, mode="mean", include_last_offset=True)
case("bag_last_offset", last, flat, torch.tensor([0, 3, 8]))
case("bag_weighted", nn.EmbeddingBag(7, 3, mode="sum"), flat, offsets,
     per_sample_weights=rand(8))
case("bag_weighted_rows", nn.EmbeddingBag(7, 3, mode="sum"), flat.view(2, 4).clone(),
     per_sample_weights=rand(2, 4))

case("weight_norm", parametrizations.weight_norm(nn.Linear(3, 2)), rand(4, 3))
case("weight_norm_all", parametrizations.weight_norm(nn.Linear(3, 2), dim=None), rand(4, 3))
case("weight_norm_conv", parametrizations.weight_norm(nn.Conv2d(2, 3, 2), dim=1), rand(1, 2, 3, 3))
case("spectral_norm", parametrizations.spectral_norm(nn.Linear(3, 2)), rand(4, 3))
case("spectral_norm_conv",
     parametrizations.spectral_norm(nn.ConvTranspose2d(2, 3, 2), n_power_iterations=2),
     rand(1, 2, 3, 3))
case("spectral_norm_evaluated", parametrizations.spectral_norm(nn.Linear(3, 2)), rand(4, 3),
     training=False)

for name, layer in (("square", nn.Linear(4, 4)), ("tall", nn.Linear(2, 4)), ("wide", nn.Linear(5, 3))):
    for orthogonal_map in "matrix_exp", "cayley", "householder":
        for trivial in (True, False):
            wrapped = parametrizations.orthogonal(
                copy.deepcopy(layer), orthogonal_map=orthogonal_map, use_trivialization=trivial)
            case(f"orthogonal_{name}_{orthogonal_map}_{int(trivial)}", wrapped,
                 rand(3, layer.in_features))
# Records the initial parameters of the map householder without trivialization.
weight = rand(4, 3)
record["orthogonal_start.weight"] = weight
layer = nn.Linear(3, 4)
layer.weight.data.copy_(weight)
layer = parametrizations.orthogonal(layer, orthogonal_map="householder", use_trivialization=False)
keep("orthogonal_start", {"original": layer.parametrizations.weight.original, "out": layer.weight})

path = pathlib.Path(__file__).parent / "layers.safetensors"
save_file(record, path, {"source": f"torch {torch.__version__}"})
