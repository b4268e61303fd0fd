#!/usr/bin/env python3
"""Runs the training steps of bench_train_step in PyTorch, and prints the same line of JSON.

Uses the fastest known settings for a CPU: the given number of threads and one inter-op thread,
denormals flushed to zero, fused attention, fused optimizers, and clipping with foreach kernels.
Models that torchvision and Transformers have are theirs, with random weights.
--compile applies torch.compile to the model. --bound measures a bound of the step: it records the
products, convolutions and attention of a step, and then repeats only these, the clipping and the
update. Under torchrun the model is wrapped in DistributedDataParallel with Gloo, with gradients as
views of its buckets, and rank 0 prints.
--sharding applies FSDP 2 to each block of a GPT and to the model instead. Weights and data are then
the same as in bench_train_step, each process has its own data, and the losses of the first steps of
rank 0 are printed.
"""

import argparse
import json
import os
import platform

import torch
import torch.nn.functional as F
from hashed import DATA_KEY, hashed_ids, set_hashed_weights
from step_timer import StepTimer
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

LOSSES = 5  # the number of losses that are printed with --sharding


class Mlp(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x, y):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return F.cross_entropy(self.layers[-1](x), y)


class Block(nn.Module):
    def __init__(self, width, heads, bias, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.proj = nn.Linear(width, width, bias=bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.up = nn.Linear(width, 4 * width, bias=bias)
        self.down = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        batch, steps, width = x.shape
        qkv = self.qkv(self.ln_1(x)).view(batch, steps, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, steps, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate=self.gelu))


class Gpt(nn.Module):
    def __init__(self, vocab, positions, layers, heads, width, bias, gelu):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads, bias, gelu) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=bias)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        # The weight of the output layer is tied to the embedding.
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def language_training(model, batch, steps, vocab):
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True
    )
    data = [torch.randint(vocab, (batch, steps)) for _ in range(2)]
    return model, optimizer, data, 1.0, batch * steps


def gpt_training(batch, steps, vocab, **shape):
    return language_training(Gpt(vocab=vocab, **shape), batch, steps, vocab)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.layers = nn.ModuleList([nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)])

    def forward(self, x, y):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        x = F.relu(self.layers[1](F.relu(self.layers[0](x))))
        return F.cross_entropy(self.layers[2](x), y)


class Classifier(nn.Module):
    """The loss of a network that maps images or tokens to logits."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        logits = self.net(x)
        return F.cross_entropy(getattr(logits, "logits", logits), y)


def resnet18():
    """A ResNet-18 for images of 32 x 32, whose first convolution has stride 1 and no pooling."""
    import torchvision

    net = torchvision.models.resnet18(num_classes=10)
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return Classifier(net)


def resnet50():
    import torchvision

    return Classifier(torchvision.models.resnet50())


def classifier_training(model, *images, classes=10, channels_last=False):
    data = [torch.randn(images), torch.randint(classes, (images[0],))]
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        data[0] = data[0].to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    return model, optimizer, data, None, images[0]


def vit_training():
    """A ViT-Tiny."""
    import torchvision

    net = torchvision.models.VisionTransformer(
        image_size=224, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    data = [torch.randn(8, 3, 224, 224), torch.randint(1000, (8,))]
    return Classifier(net), optimizer, data, None, 8


def bert_training():
    """Fine-tunes a BERT-base to classify sequences into two classes, without dropout."""
    from transformers import BertConfig, BertForSequenceClassification

    net = BertForSequenceClassification(
        BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                   attn_implementation="sdpa"))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-5, weight_decay=0.01, fused=True)
    data = [torch.randint(30522, (8, 128)), torch.randint(2, (8,))]
    return Classifier(net), optimizer, data, None, 8


class Llama(nn.Module):
    """A Llama with grouped queries, of which two heads share a key-value head."""

    def __init__(self, vocab):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        self.net = LlamaForCausalLM(LlamaConfig(
            vocab_size=vocab, hidden_size=512, intermediate_size=1376, num_hidden_layers=8,
            num_attention_heads=8, num_key_value_heads=4, use_cache=False,
            attn_implementation="sdpa"))

    def forward(self, ids, labels):
        logits = self.net(ids).logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


TRAININGS = {
    "mlp": lambda: classifier_training(Mlp(784, 512, 512, 10), 128, 784),
    "tiny-mlp": lambda: classifier_training(Mlp(64, 64, 10), 8, 64),
    "lenet": lambda: classifier_training(LeNet(), 64, 1, 28, 28),
    "resnet18": lambda: classifier_training(resnet18(), 32, 3, 32, 32, channels_last=True),
    "resnet50": lambda: classifier_training(
        resnet50(), 16, 3, 64, 64, classes=1000, channels_last=True
    ),
    "vit-tiny": vit_training,
    "char-gpt": lambda: gpt_training(
        12, 64, vocab=65, positions=64, layers=4, heads=4, width=128, bias=False, gelu="none"
    ),
    "gpt2": lambda: gpt_training(
        4, 64, vocab=50257, positions=1024, layers=12, heads=12, width=768, bias=True, gelu="tanh"
    ),
    "gpt2-1024": lambda: gpt_training(
        1, 1024, vocab=50257, positions=1024, layers=12, heads=12, width=768, bias=True,
        gelu="tanh"
    ),
    "llama": lambda: language_training(Llama(8192), 2, 256, 8192),
    "bert-base": bert_training,
}


class Products(TorchDispatchMode):
    """Keeps the calls of products, convolutions and attention, with their operands."""

    KINDS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward",
             "_scaled_dot_product_flash_attention_for_cpu",
             "_scaled_dot_product_flash_attention_for_cpu_backward")

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if function.overloadpacket.__name__ in self.KINDS:
            self.calls.append((function, arguments, named or {}))
        return function(*arguments, **(named or {}))

    def repeat(self):
        for function, arguments, named in self.calls:
            function(*arguments, **named)


def shard(model, arguments):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    kept = dict(reshard_after_forward=arguments.sharding == "full_shard")
    if arguments.dtype == "bf16":
        kept["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                                 reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, **kept)
    fully_shard(model, **kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=TRAININGS, default="char-gpt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bound", action="store_true")
    parser.add_argument("--turns", action="store_true",
                        help="measure again for each line of the standard input")
    parser.add_argument("--sharding", choices=("full_shard", "shard_grad_op"))
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    model, optimizer, data, max_norm, items = TRAININGS[arguments.model]()
    run, count = model, sum(p.numel() for p in model.parameters())
    processes, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if processes > 1:
        if arguments.turns:
            parser.error("--turns needs a job with one process")
        torch.distributed.init_process_group("gloo")
    if arguments.sharding:
        set_hashed_weights(model, len(model.blocks), "cpu")
        optimizer.param_groups[0]["lr"] = 1e-4  # as in bench_train_step
        keys = (DATA_KEY + 2 * rank, DATA_KEY + 2 * rank + 1)
        vocab = model.tokens.num_embeddings
        data = [hashed_ids(key, data[0].shape, vocab, "cpu") for key in keys]
        shard(model, arguments)
        optimizer.param_groups[0]["params"] = list(model.parameters())
    elif processes > 1:
        run = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if arguments.compile:
        run = torch.compile(run)
    parameters = list(model.parameters())
    autocast = arguments.dtype == "bf16" and not arguments.sharding

    def differentiate():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = run(*data)
        loss.backward()
        return loss

    def update():
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)
        optimizer.step()

    def step():
        loss = differentiate()
        update()
        optimizer.zero_grad()
        return loss

    if arguments.bound:
        with Products() as products:
            loss = differentiate()

        @torch.no_grad()
        def step():
            products.repeat()
            update()
            return loss

    timer = StepTimer(step, LOSSES if arguments.sharding else 1, arguments.steps)
    facts = {
        "engine": ("bound" if arguments.bound else
                   "torch.compile" if arguments.compile else "torch"),
        "version": torch.__version__,
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "model": arguments.model,
        "dtype": arguments.dtype,
        "parameters": count,
        "threads": arguments.threads,
        "processes": processes,
    }

    def report():
        measured = timer.measure()
        rate = 1e3 * items * processes / measured["ms_per_step"]
        if rank == 0:
            print(json.dumps({**facts, "tokens_per_s": rate, **measured}), flush=True)

    report()
    if arguments.turns:
        timer.take_turns(report)
    if processes > 1:
        torch.distributed.barrier()
    os._exit(0)  # exits immediately, because the compiler's workers need seconds to end


if __name__ == "__main__":
    main()
