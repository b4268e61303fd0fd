"""Pairs of bench/interop/check for training: models in folders, and states of optimizers."""

import re

import safetensors.torch
import torch
import transformers
from interop_pairs import ROOT, TORCH, TRANSFORMERS, expect


def models(p):
    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, intermediate_size=40,
                 max_position_embeddings=16)
    llama = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    bert = transformers.BertConfig(**sizes, num_attention_heads=3,
                                   id2label={0: "no", 1: "perhaps", 2: "yes"})
    gpt2 = transformers.GPT2Config(vocab_size=61, n_positions=16, n_embd=24, n_layer=2, n_head=3,
                                   bos_token_id=0, eos_token_id=0)
    causal = transformers.AutoModelForCausalLM
    known = {"gpt2": (gpt2, causal), "llama": (llama, causal),
             "bert": (bert, transformers.AutoModelForSequenceClassification)}
    torch.manual_seed(1)
    ids, mask = torch.randint(1, 61, (3, 12)), torch.ones(3, 12, dtype=torch.long)
    mask[1, 8:], mask[2, 5:] = 0, 0
    inputs = p.scratch / "inputs.safetensors"
    safetensors.torch.save_file({"ids": ids, "mask": mask}, inputs)

    def difference(kind, model, folder):
        """Compares Axle's and PyTorch's logits, for Llama except at padding tokens. Returns a text
        with the largest difference, or raises AssertionError if it is too large."""
        p.call("model-run", kind, folder, inputs, p.scratch / "logits")
        ours = safetensors.torch.load_file(p.scratch / "logits")["logits"]
        with torch.no_grad():
            masks = {} if kind == "gpt2" else {"attention_mask": mask}
            theirs = model.eval()(ids, **masks).logits
        expect(ours.shape, theirs.shape, "logits of shape")
        if kind == "llama":
            ours, theirs = ours[mask.bool()], theirs[mask.bool()]
        largest, worst = theirs.abs().max().item(), (ours - theirs).abs().max().item()
        assert worst <= 1e-5 * largest, f"logits up to {largest} differ by {worst}"
        return f"same logits, max abs difference {worst:.1e} of {largest:.1f}"

    def theirs_reads(kind):
        folder = p.folder(f"{kind}-ours")
        p.call("model-write", kind, folder)
        model, report = known[kind][1].from_pretrained(folder, output_loading_info=True)
        left = {k: v for k, v in report.items() if v and k.endswith("_keys")}
        expect(left, {}, "keys left")
        return difference(kind, model, folder)

    def ours_reads(kind, pickled=False):
        model = known[kind][1].from_config(known[kind][0])
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        folder = p.folder(f"{kind}-theirs")
        model.save_pretrained(folder)
        if pickled:
            (folder / "model.safetensors").unlink()
            torch.save(model.state_dict(), folder / "pytorch_model.bin")
        return difference(kind, model, folder)

    for kind in known:
        p.pair(p.ours, TRANSFORMERS, f"{kind} folder", lambda: theirs_reads(kind))
        p.pair(TRANSFORMERS, p.ours, f"{kind} folder", lambda: ours_reads(kind))
        p.pair(TORCH, p.ours, f"{kind} folder with pytorch_model.bin",
               lambda: ours_reads(kind, pickled=True))


def documented():
    """Returns the functions save_optimizer and load_optimizer of docs/interchange.md."""
    text = (ROOT / "docs/interchange.md").read_text()
    functions = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1), functions)
    return functions


def optimizers(p):
    python, double = documented(), {"dtype": torch.float64}
    torch.manual_seed(2)
    data = {"x": torch.randn(20, 5, 3, **double), "y": torch.randn(20, 5, 2, **double)}
    known = {
        "sgd": lambda g: torch.optim.SGD(g, lr=0.05, momentum=0.9, nesterov=True),
        "adam": lambda g: torch.optim.Adam(g, lr=0.01, betas=(0.8, 0.9), amsgrad=True),
        "adamw": lambda g: torch.optim.AdamW(g, lr=0.02, betas=(0.9, 0.95), weight_decay=0.1),
    }

    def network():
        model = torch.nn.Sequential(torch.nn.Linear(3, 4, **double), torch.nn.Tanh(),
                                    torch.nn.Linear(4, 2, **double))
        weights = [t for t in model.parameters() if t.dim() == 2]
        biases = [t for t in model.parameters() if t.dim() == 1]
        return model, [{"params": weights}, {"params": biases}]

    def train(kind, start, end, first):
        """Runs the command `train` of interop.cpp in PyTorch."""
        model, groups = network()
        optimizer = known[kind](groups)
        safetensors.torch.load_model(model, start / "model.safetensors")
        if first > 0:
            python["load_optimizer"](start / "optimizer.safetensors", optimizer)
        losses = []
        for step in range(first, first + 10):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(data["x"][step]), data["y"][step])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        safetensors.torch.save_file(model.state_dict(), end / "model.safetensors")
        safetensors.torch.save_file(data, end / "data.safetensors")
        python["save_optimizer"](end / "optimizer.safetensors", optimizer)
        return losses

    def goes_on(kind, ours_first):
        """Trains ten steps in one program, then ten more steps in each program from its files."""
        start, middle, end = (p.folder(f"{kind}-{ours_first}-{n}") for n in "abc")
        safetensors.torch.save_file(network()[0].state_dict(), start / "model.safetensors")
        safetensors.torch.save_file(data, start / "data.safetensors")
        if ours_first:
            p.ask("train", kind, start, middle, 0)
        else:
            train(kind, start, middle, 0)
        ours = p.ask("train", kind, middle, end, 10)
        pairs = list(zip(ours, train(kind, middle, end, 10), strict=True))
        worst = max(abs(a - b) for a, b in pairs)
        assert worst <= 1e-9, f"losses differ by {worst}: {pairs}"
        return f"same next 10 losses, max abs difference {worst:.1e}, float64"

    for kind in known:
        name = known[kind]([torch.zeros(1)]).__class__.__name__
        p.pair(p.ours, TORCH, f"{name} state", lambda: goes_on(kind, True))
        p.pair(TORCH, p.ours, f"{name} state", lambda: goes_on(kind, False))
