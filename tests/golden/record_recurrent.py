"""Records results of PyTorch's recurrent layers, for tests/nn: writes recurrent.safetensors.

All values are float64. For each case, the file contains the weights ("state."), the arguments, the
results, and the gradients of the sum of the results, each multiplied by a recorded factor
("factor.").
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_default_dtype(torch.float64)
torch.manual_seed(21)
record = {}

IN, HIDDEN, TIME, BATCH = 2, 3, 5, 3
LENGTHS = [3, 5, 2]


def keep(prefix, tensors):
    for name, tensor in tensors.items():
        record[f"{prefix}.{name}"] = tensor.detach().clone().contiguous()


def state_tensors(kind, state):
    if state is None:
        return {}
    return dict(zip(("h", "c"), state)) if kind == "LSTM" else {"h": state}


def differentiate(name, layer, inputs, outputs):
    """Records inputs, outputs, factors and gradients."""
    keep(f"{name}.in", inputs)
    keep(f"{name}.out", outputs)
    factors = {key: torch.randn_like(y) for key, y in outputs.items()}
    keep(f"{name}.factor", factors)
    sum((outputs[key] * factors[key]).sum() for key in outputs).backward()
    keep(f"{name}.state", layer.state_dict())
    keep(f"{name}.grad", {key: p.grad for key, p in layer.named_parameters()})
    keep(f"{name}.grad_in", {key: x.grad for key, x in inputs.items()})


def layer_case(name, kind, states=True, unbatched=False, packed=False, **options):
    layer = getattr(nn, kind)(IN, HIDDEN, **options)
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(0, 0.7)
    first = options.get("batch_first", False)
    shape = (TIME, IN) if unbatched else (BATCH, TIME, IN) if first else (TIME, BATCH, IN)
    inputs = {"x": torch.randn(shape, requires_grad=True)}
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    batch = () if unbatched else (BATCH,)
    initial = None
    if states:
        h = torch.randn(layers, *batch, options.get("proj_size") or HIDDEN, requires_grad=True)
        initial = inputs["h"] = h
        if kind == "LSTM":
            inputs["c"] = torch.randn(layers, *batch, HIDDEN, requires_grad=True)
            initial = (h, inputs["c"])
    if packed:
        x = pack_padded_sequence(inputs["x"], LENGTHS, batch_first=first, enforce_sorted=False)
        y, last = layer(x, initial)
        keep(name, {"sizes": y.batch_sizes, "order": y.sorted_indices})
        y, _ = pad_packed_sequence(y, batch_first=first, padding_value=-1.5, total_length=TIME + 1)
    else:
        y, last = layer(inputs["x"], initial)
    differentiate(name, layer, inputs, {"y": y} | state_tensors(kind, last))


def cell_case(name, kind, unbatched=False, states=True, **options):
    layer = getattr(nn, kind)(IN, HIDDEN, **options)
    batch = () if unbatched else (BATCH,)
    inputs = {"x": torch.randn(*batch, IN, requires_grad=True)}
    state = None
    if states:
        state = inputs["h"] = torch.randn(*batch, HIDDEN, requires_grad=True)
        if kind == "LSTMCell":
            inputs["c"] = torch.randn(*batch, HIDDEN, requires_grad=True)
            state = (state, inputs["c"])
    y = layer(inputs["x"], state)
    differentiate(name, layer, inputs, state_tensors("LSTM", y) if kind == "LSTMCell" else {"h": y})


for kind in "RNN", "LSTM", "GRU":
    layer_case(f"{kind}.plain", kind, states=False)
    layer_case(f"{kind}.deep", kind, num_layers=2)
    layer_case(f"{kind}.no_bias", kind, bias=False, batch_first=True)
    layer_case(f"{kind}.both", kind, num_layers=2, bidirectional=True)
    layer_case(f"{kind}.unbatched", kind, unbatched=True, bidirectional=True)
    layer_case(f"{kind}.packed", kind, packed=True, num_layers=2, bidirectional=True)
    layer_case(f"{kind}.packed_zeros", kind, packed=True, states=False, batch_first=True)
layer_case("RNN.relu", "RNN", nonlinearity="relu", num_layers=2)
layer_case("LSTM.projection", "LSTM", proj_size=2, num_layers=2, bidirectional=True)
layer_case("LSTM.packed_projection", "LSTM", proj_size=2, packed=True, bidirectional=True)

for kind in "RNNCell", "LSTMCell", "GRUCell":
    cell_case(f"{kind}.plain", kind)
    cell_case(f"{kind}.unbatched", kind, unbatched=True)
    cell_case(f"{kind}.no_bias", kind, bias=False, states=False)
cell_case("RNNCell.relu", "RNNCell", nonlinearity="relu")

path = pathlib.Path(__file__).parent / "recurrent.safetensors"
save_file(record, path, {"source": f"torch {torch.__version__}"})
