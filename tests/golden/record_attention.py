"""Records masks of PyTorch's MultiheadAttention, for tests/nn: writes attention.safetensors.

All values are float64. The layer is in evaluation mode. For each case, the file contains the masks,
the output, the averaged attention weights and the weights of each head.
"""

import pathlib
import warnings

import torch
from safetensors.torch import save_file
from torch import nn

warnings.filterwarnings("ignore", message="Support for mismatched key_padding_mask")
torch.set_default_dtype(torch.float64)
torch.manual_seed(15)
record = {}

BATCH, QUERIES, KEYS, WIDTH, HEADS = 3, 4, 5, 8, 2
layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
with torch.no_grad():
    for p in layer.parameters():
        p.normal_(0, 0.5)
for name, p in layer.named_parameters():
    record[f"layer.{name}"] = p

query = torch.randn(BATCH, QUERIES, WIDTH)
key, value = torch.randn(2, BATCH, KEYS, WIDTH)
record |= {"query": query, "key": key, "value": value}

# Each query keeps at least one key.
no_attention = torch.rand(QUERIES, KEYS) < 0.4
no_attention[:, 0] = False
no_attention_of_heads = torch.rand(BATCH * HEADS, QUERIES, KEYS) < 0.4
no_attention_of_heads[:, :, 0] = False
padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1]]).bool()
added = torch.randn(QUERIES, KEYS)
added_of_heads = torch.randn(BATCH * HEADS, QUERIES, KEYS)
added_padding = torch.randn(BATCH, KEYS)
future = torch.ones(QUERIES, KEYS).triu(1).bool()

CASES = {
    "bool": {"attn_mask": no_attention},
    "bool_of_heads": {"attn_mask": no_attention_of_heads},
    "float": {"attn_mask": added},
    "float_of_heads": {"attn_mask": added_of_heads},
    "padding": {"key_padding_mask": padding},
    "float_padding": {"key_padding_mask": added_padding},
    "bool_and_padding": {"attn_mask": no_attention, "key_padding_mask": padding},
    "float_and_padding": {"attn_mask": added, "key_padding_mask": padding},
    "bool_of_heads_and_padding": {"attn_mask": no_attention_of_heads, "key_padding_mask": padding},
    "causal_and_padding": {"attn_mask": future, "key_padding_mask": padding},
}
with torch.no_grad():
    for case, masks in CASES.items():
        y, weights = layer(query, key, value, **masks)
        heads = layer(query, key, value, average_attn_weights=False, **masks)[1]
        parts = masks | {"output": y, "weights": weights, "weights_of_heads": heads}
        for name, tensor in parts.items():
            record[f"{case}.{name}"] = tensor

record = {name: tensor.detach().clone().contiguous() for name, tensor in record.items()}
save_file(record, pathlib.Path(__file__).parent / "attention.safetensors")
