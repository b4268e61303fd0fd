"""Records results of PyTorch and Transformers, for tests/nn: writes nn.safetensors and the folder
gpt2_tiny/ (a model as Transformers saves it).

Trajectories are float64. Each trajectory contains the initial weights, the data, the loss of every
step and the final weights.
"""

import math
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
STEPS = 50
record = {}


def keep(prefix, tensors):
    for name, tensor in tensors.items():
        record[f"{prefix}.{name}"] = tensor.detach().clone().contiguous()


# --- GPT-2 of Transformers


def gpt2_tiny():
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=61, n_positions=16, n_embd=24, n_layer=2, n_head=3,
        activation_function="gelu_new", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=0, eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # so that every part affects the logits
        for name, p in model.named_parameters():
            p.normal_(1.0 if ".ln_" in name and name.endswith("weight") else 0.0, 0.3)
    folder = HERE / "gpt2_tiny"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    ids = torch.randint(0, 61, (2, 16))
    with torch.no_grad():
        out = model(ids, labels=ids)  # Transformers shifts the labels itself
        greedy = model.generate(
            ids[:1, :5], attention_mask=torch.ones(1, 5, dtype=torch.long), max_new_tokens=11,
            do_sample=False, eos_token_id=None, pad_token_id=0,
        )
    keep("gpt2_tiny", {"ids": ids, "logits": out.logits, "loss": out.loss, "greedy": greedy})


# --- trajectories


class Mlp(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Conv1D(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))

    def forward(self, x):
        return x @ self.weight


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(c, dim=-1)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(b, t, c))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=False)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, bias=False)
        self.mlp = FeedForward(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, vocab, block, layers, heads, width):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(block, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class Gpt(nn.Module):
    """A GPT whose head is tied to the embedding."""

    def __init__(self, **size):
        super().__init__()
        self.transformer = Transformer(**size)

    def forward(self, ids):
        return self.transformer(ids) @ self.transformer.wte.weight.T


def trajectory(name, model, optimizer, loss_of, schedule=None, max_norm=None):
    keep(f"{name}.before", model.state_dict())
    losses = []
    for step in range(STEPS):
        loss = loss_of(step)
        loss.backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    keep(f"{name}.after", model.state_dict())
    record[f"{name}.losses"] = torch.stack(losses)


def mlp_trajectories():
    torch.manual_seed(2)
    x = torch.randn(12, 5)
    targets = torch.randint(0, 3, (12,))
    y = torch.randn(12, 3)
    keep("mlp", {"x": x, "y": y, "targets": targets})

    model = Mlp([5, 16, 8, 3])
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    schedule = transformers.get_cosine_schedule_with_warmup(sgd, 5, STEPS)
    trajectory("mlp_sgd", model, sgd, lambda _: F.mse_loss(model(x), y), schedule)

    model = Mlp([5, 16, 8, 3])
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    trajectory("mlp_adamw", model, adamw, lambda _: F.cross_entropy(model(x), targets), max_norm=0.3)


def gpt_trajectory():
    torch.manual_seed(3)
    model = Gpt(vocab=11, block=6, layers=1, heads=2, width=8)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(1.0 if ".ln_" in name else 0.0, 0.3)
    tokens = torch.randint(0, 11, (STEPS, 4, 7))
    record["gpt.tokens"] = tokens
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)

    def loss_of(step):
        logits = model(tokens[step, :, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[step, :, 1:].flatten())

    trajectory("gpt", model, adamw, loss_of, max_norm=1.0)


# --- layers


def attention():
    torch.manual_seed(4)
    layer = nn.MultiheadAttention(8, 2)
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(0, 0.5)
    keep("mha", layer.state_dict())
    query, key, value = torch.randn(5, 3, 8), torch.randn(7, 3, 8), torch.randn(7, 3, 8)
    added = torch.randn(5, 7)
    future = nn.Transformer.generate_square_subsequent_mask(5)
    keep("mha", {"query": query, "key": key, "value": value, "added": added})
    query.requires_grad_()
    cross = layer(query, key, value, attn_mask=added)[0]
    causal = layer(query, query, query, attn_mask=future, is_causal=True)[0]
    plain = layer(query, key, value)[0]
    (plain * plain).sum().backward()
    keep("mha", {"cross": cross, "causal": causal, "plain": plain, "query_grad": query.grad})
    keep("mha.grad", {name: p.grad for name, p in layer.named_parameters()})


def layers():
    torch.manual_seed(5)
    x = 3 * torch.randn(4, 6) + 1
    table = nn.Embedding(7, 6, padding_idx=2)
    ids = torch.tensor([[1, 2], [6, 1]])
    rows = table(ids)
    (rows * rows).sum().backward()
    keep("layers", {
        "x": x,
        "layer_norm": nn.LayerNorm(6)(x),
        "rms_norm": nn.RMSNorm(6)(x),
        "table": table.weight, "ids": ids, "rows": rows, "table_grad": table.weight.grad,
    })


def batch_norm_trajectory():
    torch.manual_seed(6)
    x, y = 2 * torch.randn(STEPS, 7, 4) + 1, torch.randn(STEPS, 7, 3)
    norm = nn.BatchNorm1d(6)
    model = nn.Sequential(nn.Linear(4, 6), norm, nn.ReLU(), nn.Linear(6, 3))
    keep("batch_norm", {"x": x, "y": y})
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss_of(step):  # every fifth step in evaluation mode, which does not change the running statistics
        model.train(step % 5 != 4)
        return F.mse_loss(model(x[step % 5]), y[step % 5])

    trajectory("batch_norm", model, sgd, loss_of)


def channel_norms():
    torch.manual_seed(7)
    x = 3 * torch.randn(3, 2, 4, 5, 2) + 1
    group = nn.GroupNorm(2, 4)
    keep("channel_norms", {"x": x, "group": group(x[0])})
    for name, momentum in {"moving": 0.3, "average": None}.items():
        norm = nn.BatchNorm2d(4, eps=1e-3, momentum=momentum)
        for batch in x:
            y = norm(batch)
        keep(f"channel_norms.{name}", {"training": y, "evaluation": norm.eval()(x[0])})
        keep(f"channel_norms.{name}.state", norm.state_dict())


def main():
    gpt2_tiny()
    torch.set_default_dtype(torch.float64)
    mlp_trajectories()
    gpt_trajectory()
    attention()
    layers()
    batch_norm_trajectory()
    channel_norms()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    save_file(record, HERE / "nn.safetensors", {"source": versions})


main()
