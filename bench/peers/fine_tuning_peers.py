#!/usr/bin/env python3
"""Fine-tunes as train_text, train_vision and train_gpt, with Accelerate, Transformers, torchvision
and PEFT, on the data of bench/peers/fine_tuning, once for each seed. Prints a line of JSON.

The loops are those of examples/nlp_example.py and cv_example.py of Accelerate, with the settings of
Axle's programs: weight decay for matrices only, clipping to the norm 1, and the same schedules. With
--evaluate, also evaluates what a program of Axle has written.
"""

import argparse
import csv
import json
import os
import pathlib
import random
import time

import safetensors.torch
import torch
import torchvision
import transformers
from accelerate import Accelerator
from accelerate.utils import set_seed
from fine_tuning_data import padded
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import DataLoader
from torchvision.transforms import v2


def optimizer_of(model, lr, weight_decay, **options):
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, fused=True, **options)


def rows_of(path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


# A task has these methods:
#   model(written)    the initial model, or the model that a program of Axle has written
#   loaders()         for training and validation
#   optimizer(model, steps) returns the optimizer and the schedule of the learning rate
#   outputs(model, batch)   returns the mean loss of a batch, and of its samples (or trained tokens):
#                           the sum of the losses, the number of correct ones and the number of all


class Text:
    """nlp_example.py, with pairs of texts in CSV files and a small BERT."""

    def __init__(self, a):
        self.a = a
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(a.data / "bert")

    def model(self, written):
        return transformers.AutoModelForSequenceClassification.from_pretrained(
            written or self.a.data / "bert")

    def samples(self, name, model_labels):
        rows = rows_of(self.a.data / name)
        encoded = self.tokenizer([r["review"] for r in rows], [r["question"] for r in rows],
                                 truncation=True, max_length=64)
        return [{**{key: encoded[key][i] for key in encoded}, "labels": model_labels[r["answer"]]}
                for i, r in enumerate(rows)]

    def loaders(self):
        labels = {"no": 0, "yes": 1}  # in the order of the names, as in train_text
        collate = lambda samples: self.tokenizer.pad(samples, return_tensors="pt")
        return (DataLoader(self.samples("train.csv", labels), shuffle=True, collate_fn=collate,
                           batch_size=self.a.batch_size),
                DataLoader(self.samples("validation.csv", labels), collate_fn=collate,
                           batch_size=4 * self.a.batch_size))

    def optimizer(self, model, steps):
        optimizer = optimizer_of(model, self.a.lr, 0.01)
        return optimizer, transformers.get_linear_schedule_with_warmup(
            optimizer, round(0.1 * steps), steps)

    def outputs(self, model, batch):
        outputs = model(**batch)
        return classified(outputs.loss, outputs.logits, batch["labels"])


def classified(loss, logits, labels):
    right = (logits.argmax(-1) == labels).sum().item()
    return loss, loss.item() * len(labels), right, len(labels)


class Vision:
    """cv_example.py, with a ResNet-18."""

    SIZE = 72

    def __init__(self, a):
        self.a = a

    def model(self, written):
        model = torchvision.models.resnet18(num_classes=4)
        path = written / "model.safetensors" if written else self.a.data / "resnet18.safetensors"
        model.load_state_dict(safetensors.torch.load_file(path))
        return model.to(memory_format=torch.channels_last)

    def loaders(self):
        folder = torchvision.datasets.ImageFolder
        center = [v2.Resize(self.SIZE + self.SIZE // 7), v2.CenterCrop(self.SIZE), v2.PILToTensor()]
        # The statistics of the training images, as in train_vision.
        plain = folder(self.a.data / "shapes/train", v2.Compose(center))
        pixels = torch.stack([image for image, _ in plain]).double() / 255
        mean, std = pixels.mean((0, 2, 3)).tolist(), pixels.std((0, 2, 3), correction=0).tolist()
        last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]
        random_crop = [v2.RandomResizedCrop(self.SIZE, scale=(0.3, 1)), v2.RandomHorizontalFlip(),
                       v2.PILToTensor()]
        train = folder(self.a.data / "shapes/train", v2.Compose(random_crop + last))
        test = folder(self.a.data / "shapes/val", v2.Compose(center + last))
        return (DataLoader(train, shuffle=True, batch_size=self.a.batch_size, num_workers=1),
                DataLoader(test, batch_size=4 * self.a.batch_size, num_workers=1))

    def optimizer(self, model, steps):
        optimizer = optimizer_of(model, self.a.lr, 0.05)
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, self.a.lr, steps)

    def outputs(self, model, batch):
        images, labels = batch
        logits = model(images.to(memory_format=torch.channels_last))
        return classified(torch.nn.functional.cross_entropy(logits, labels), logits, labels)


class Lora:
    """A LoRA adapter of PEFT for a GPT-2 whose tokens are bytes."""

    def __init__(self, a):
        self.a, self.seed = a, 0

    def model(self, written):
        base = transformers.GPT2LMHeadModel.from_pretrained(self.a.data / "gpt2")
        if written:
            return PeftModel.from_pretrained(base, written)
        return get_peft_model(base, LoraConfig(
            r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM",
            fan_in_fan_out=True))

    def collate(self, rows):
        ids = padded([row["prompt"] + row["completion"] for row in rows])
        labels = torch.full_like(ids, -100)
        for line, label, row in zip(ids, labels, rows):
            begin = len(row["prompt"].encode())
            end = begin + len(row["completion"].encode()) + 1  # with the byte that ends the document
            label[begin:end] = line[begin:end]
        return {"input_ids": ids, "labels": labels}

    def loaders(self):
        rows = rows_of(self.a.data / "train.jsonl")
        random.Random(self.seed).shuffle(rows)
        rows = rows[: len(rows) * 9 // 10]  # train_gpt validates on a random tenth
        return (DataLoader(rows, shuffle=True, collate_fn=self.collate,
                           batch_size=self.a.batch_size),
                DataLoader(rows_of(self.a.data / "validation.jsonl"), collate_fn=self.collate,
                           batch_size=4 * self.a.batch_size))

    def optimizer(self, model, steps):
        optimizer = optimizer_of(model, self.a.lr, 0.1, betas=(0.9, 0.99))
        return optimizer, transformers.get_cosine_with_min_lr_schedule_with_warmup(
            optimizer, self.a.warmup, steps, min_lr=self.a.min_lr)

    def outputs(self, model, batch):
        outputs = model(**batch)
        wanted = batch["labels"][:, 1:]
        count = (wanted != -100).sum().item()
        right = (outputs.logits[:, :-1].argmax(-1) == wanted).sum().item()
        return outputs.loss, outputs.loss.item() * count, right, count


def evaluate(task, model, loader):
    """Returns the mean loss and the accuracy, of samples or, for a language model, of the tokens of
    the completions."""
    model.eval()
    with torch.no_grad():
        sums = [task.outputs(model, batch)[1:] for batch in loader]
    model.train()
    loss, right, count = (sum(column) for column in zip(*sums))
    return {"val_loss": loss / count, "accuracy": right / count}


def train(task, a, seed):
    accelerator = Accelerator(cpu=True)
    set_seed(seed)
    task.seed, model = seed, task.model(None)
    train_loader, validation = task.loaders()
    steps = a.steps or a.epochs * len(train_loader)
    optimizer, scheduler = task.optimizer(model, steps)
    model, optimizer, train_loader, validation, scheduler = accelerator.prepare(
        model, optimizer, train_loader, validation, scheduler)
    model.train()
    losses, start = [], time.perf_counter()
    while len(losses) < steps:
        for batch in train_loader:
            loss = task.outputs(model, batch)[0]
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    results = evaluate(task, model, validation)
    return {**results, "seed": seed, "losses": losses, "steps": steps,
            "seconds": time.perf_counter() - start}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--evaluate", type=pathlib.Path, nargs="+", default=[],
                        help="folders of a program of Axle")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--min-lr", type=float, default=0)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    task = TASKS[a.task](a)
    results = {
        "evaluated": [evaluate(task, task.model(folder), task.loaders()[1])
                      for folder in a.evaluate],
        "trained": [train(task, a, seed) for seed in a.seeds],
    }
    print(json.dumps(results), flush=True)
    os._exit(0)  # exits without waiting for workers of loaders


TASKS = {"text": Text, "vision": Vision, "lora": Lora}

if __name__ == "__main__":
    main()
