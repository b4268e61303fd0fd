"""Records results of PyTorch's attention and transformer layers, for tests/nn: writes
transformer.safetensors.

All values are float64, without dropout. For each case, the file contains the weights ("state."),
the arguments ("in."), the results ("out."), and the gradients ("grad.", "grad_in.") of the sum of
the results, each multiplied by a recorded factor ("factor.").
"""

import pathlib
import warnings

import torch
from safetensors.torch import save_file
from torch import nn

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)
torch.manual_seed(24)
record = {}

WIDTH, HEADS, BATCH = 4, 2, 2


def keep(prefix, tensors):
    for name, tensor in tensors.items():
        if tensor is not None:
            record[f"{prefix}.{name}"] = tensor.detach().clone().contiguous()


def case(name, layer, call, **inputs):
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(0, 0.6)
    for key, x in inputs.items():
        if x.is_floating_point() and "mask" not in key:
            x.requires_grad_()
    keep(f"{name}.in", inputs)
    keep(f"{name}.state", layer.state_dict())
    outputs = call(layer, inputs)
    if not isinstance(outputs, dict):
        outputs = {"y": outputs}
    factors = {key: torch.randn_like(y) for key, y in outputs.items()}
    sum((outputs[key] * factors[key]).sum() for key in outputs).backward()
    keep(f"{name}.out", outputs)
    keep(f"{name}.factor", factors)
    keep(f"{name}.grad", {key: p.grad for key, p in layer.named_parameters()})
    keep(f"{name}.grad_in", {key: x.grad for key, x in inputs.items()})


def attend(layer, x):
    masks = {key: x[key] for key in ("attn_mask", "key_padding_mask") if key in x}
    y, weights = layer(x["query"], x["key"], x["value"], average_attn_weights=False, **masks)
    return {"y": y, "weights": weights}


def attention(name, time_q=3, time_k=4, masks=None, unbatched=False, **options):
    layer = nn.MultiheadAttention(WIDTH, HEADS, **options)
    batch = () if unbatched else (BATCH,)
    sizes = {"query": (time_q, WIDTH), "key": (time_k, options.get("kdim") or WIDTH),
             "value": (time_k, options.get("vdim") or WIDTH)}
    inputs = {key: torch.randn(time, *batch, size) for key, (time, size) in sizes.items()}
    case(name, layer, attend, **inputs, **(masks or {}))


no_attention = torch.tensor([[0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0]]).bool()
padding = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0]]).bool()
future = torch.ones(4, 4).triu(1).bool()

attention("bias_kv", add_bias_kv=True)
attention("zero_attn", add_zero_attn=True, masks={"key_padding_mask": padding})
attention("both", add_bias_kv=True, add_zero_attn=True,
          masks={"attn_mask": no_attention, "key_padding_mask": padding})
attention("both_float", add_bias_kv=True, add_zero_attn=True,
          masks={"attn_mask": torch.randn(3, 4)})
attention("both_causal", 4, 4, add_bias_kv=True, add_zero_attn=True, masks={"attn_mask": future})
attention("sizes", kdim=3, vdim=5, masks={"key_padding_mask": padding})
attention("sizes_no_bias", kdim=3, vdim=5, bias=False, add_bias_kv=True)
attention("unbatched", unbatched=True,
          masks={"attn_mask": no_attention, "key_padding_mask": padding[0]})
attention("unbatched_heads", unbatched=True, add_bias_kv=True,
          masks={"attn_mask": torch.randn(HEADS, 3, 4)})

OPTIONS = {
    "plain": {},
    "pre": {"norm_first": True, "activation": "gelu", "batch_first": True},
    "no_bias": {"bias": False, "layer_norm_eps": 1e-2},
}
common = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 6, "dropout": 0.0}
for name, options in OPTIONS.items():
    first = options.get("batch_first", False)
    shape = (lambda time: (BATCH, time, WIDTH)) if first else (lambda time: (time, BATCH, WIDTH))
    layer = nn.TransformerEncoderLayer(**common, **options)
    case(f"encoder_{name}", layer, lambda f, x: f(x["src"], x["mask"], x["padding_mask"]),
         src=torch.randn(shape(4)), mask=future, padding_mask=padding)
    layer = nn.TransformerDecoderLayer(**common, **options)
    case(f"decoder_{name}", layer,
         lambda f, x: f(x["tgt"], x["memory"], x["tgt_mask"], x["memory_mask"],
                        memory_key_padding_mask=x["padding_mask"]),
         tgt=torch.randn(shape(3)), memory=torch.randn(shape(4)),
         tgt_mask=nn.Transformer.generate_square_subsequent_mask(3),
         memory_mask=torch.randn(3, 4), padding_mask=padding)
model = nn.Transformer(**common, num_encoder_layers=2, num_decoder_layers=2)
case("transformer", model,
     lambda f, x: f(x["src"], x["tgt"], tgt_mask=x["tgt_mask"], src_key_padding_mask=padding,
                    memory_key_padding_mask=padding, tgt_is_causal=True),
     src=torch.randn(4, BATCH, WIDTH), tgt=torch.randn(3, BATCH, WIDTH), padding_mask=padding,
     tgt_mask=nn.Transformer.generate_square_subsequent_mask(3))
model = nn.Transformer(**common, num_encoder_layers=1, num_decoder_layers=1, **OPTIONS["pre"])
case("transformer_unbatched", model, lambda f, x: f(x["src"], x["tgt"]),
     src=torch.randn(4, WIDTH), tgt=torch.randn(3, WIDTH))

path = pathlib.Path(__file__).parent / "transformer.safetensors"
save_file(record, path, {"source": f"torch {torch.__version__}"})
