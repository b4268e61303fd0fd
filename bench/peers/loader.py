#!/usr/bin/env python3
"""Runs the passes of bench_loader in PyTorch, with the same protocol (see bench/loader.cpp).

Uses the fastest variant of each case: a batch is an array of indices, and NumPy gathers all its
rows or windows in one call. The loop converts arrays to tensors, because sending tensors from
workers through shared memory is twenty times slower. A compiled function normalizes images; without
workers, it also gathers the rows of "images". With workers, the loop calls the function, so that
workers send bytes, which are four times smaller than floats.
"""

import argparse
import json
import os
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

MEAN = torch.tensor([0.49, 0.48, 0.44]).view(3, 1, 1)
STD = torch.tensor([0.24, 0.25, 0.26]).view(3, 1, 1)


class Batches(Sampler):
    """Yields the batches of an epoch in RandomSampler's order."""

    def __init__(self, samples, batch):
        self.samples, self.batch, self.epoch = samples, batch, 0

    def __len__(self):
        return -(-self.samples // self.batch)

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(self.samples, generator=generator).numpy()
        return iter([order[i:i + self.batch] for i in range(0, self.samples, self.batch)])


def tensors(arrays):
    return [torch.from_numpy(array) for array in arrays]


class Small(Dataset):
    batch = {"small64": 64, "small512": 512}

    def __init__(self, path, _):
        self.samples = 200_000
        words = np.resize(np.fromfile(path, np.uint16), self.samples * 16)
        self.x = (words.astype(np.float32) / 65536).reshape(-1, 16)
        self.y = np.arange(self.samples)

    def __getitem__(self, rows):
        return self.x.take(rows, 0), self.y.take(rows)

    finish = staticmethod(tensors)


def normalised(images):
    return (images.float() / 255 - MEAN) / STD


class Pictures(Dataset):
    def __init__(self, path, workers, samples, size):
        self.late, self.samples = workers > 0, samples
        width = size[-1]
        data = np.resize(np.fromfile(path, np.uint8), (samples, *size)) // 2
        self.images = data + (np.arange(width) * 127 // width).astype(np.uint8)
        self.labels = np.arange(samples)

    def finish(self, batch):
        if not self.late:
            return batch
        images, labels = tensors(batch)
        return self.normalise(images), labels


class Cifar(Pictures):
    batch = {"cifar": 128}

    def __init__(self, path, workers):
        super().__init__(path, workers, 25_600, (3, 32, 32))
        self.normalise = torch.compile(normalised, dynamic=True)
        padded = np.pad(self.images, ((0, 0), (0, 0), (4, 4), (4, 4)))
        both = np.stack([padded, padded[..., ::-1]])
        self.windows = np.lib.stride_tricks.sliding_window_view(both, (32, 32), axis=(3, 4))
        self.random = np.random.default_rng(1)

    def __getitem__(self, rows):
        top, left = self.random.integers(9, size=(2, len(rows)))
        flipped = self.random.integers(2, size=len(rows))
        batch = self.windows[flipped, rows, :, top, left], self.labels.take(rows)
        if self.late:
            return batch
        images, labels = tensors(batch)
        return self.normalise(images), labels


class Images(Pictures):
    batch = {"images": 32}

    def __init__(self, path, workers):
        super().__init__(path, workers, 1024, (3, 224, 224))
        self.normalise = torch.compile(normalised)
        self.gather = torch.compile(lambda all_of_them, rows: normalised(all_of_them[rows]))
        self.tensor = torch.from_numpy(self.images)

    def __getitem__(self, rows):
        if self.late:
            return self.images.take(rows, 0), self.labels.take(rows)
        return self.gather(self.tensor, torch.from_numpy(rows)), self.labels.take(rows)


class Tokens(Dataset):
    batch = {"tokens": 32}

    def __init__(self, path, _):
        tokens = np.asarray(np.memmap(path, np.uint16, "r"))
        self.blocks = np.lib.stride_tricks.sliding_window_view(tokens, 257)[::256]
        self.samples = len(self.blocks)

    def __getitem__(self, rows):
        blocks = self.blocks[rows]
        return blocks[:, :-1].astype(np.int64), blocks[:, 1:].astype(np.int64)

    finish = staticmethod(tensors)


CASES = {name: made for made in (Small, Cifar, Images, Tokens) for name in made.batch}


def made(name, path, workers, way):
    if name in CASES:
        return CASES[name](path, workers)
    import loader_files
    if name == "jpeg_folder":
        return loader_files.Jpegs(path, workers, way)
    return loader_files.CASES[name](path, name, way)


def words_of(part):
    """Returns the numbers of a tensor or the bytes of texts, with a line end between two texts."""
    if isinstance(part, list):
        return np.frombuffer("\n".join(part).encode(), np.uint8)
    part = torch.as_tensor(part)
    words = part.numpy().reshape(-1)
    return words.view(np.uint32) if part.dtype == torch.float32 else words


def digest_of(parts):
    """Returns the checksum of the Digest of loader.cpp."""
    digest = 0
    for words in map(words_of, parts):
        odd = 2 * np.arange(words.size, dtype=np.uint64) + 1
        digest = (digest * 31 + int((words.astype(np.uint64) * odd).sum())) % 2**64
    return digest


class Passes:
    def __init__(self, name, path, workers, prefetch, way):
        self.dataset = made(name, path, workers, way)
        self.is_stream = hasattr(self.dataset, "loader")
        ahead = {"prefetch_factor": prefetch, "persistent_workers": True} if workers else {}
        if self.is_stream:
            self.loader = self.dataset.loader(workers, ahead)
            return
        self.batches = Batches(self.dataset.samples, self.dataset.batch[name])
        self.loader = DataLoader(self.dataset, sampler=self.batches, batch_size=None,
                                 collate_fn=lambda batch: batch, num_workers=workers, **ahead)

    def __iter__(self):
        finish = self.dataset.finish
        for batch in self.loader:
            yield finish(batch)
        if not self.is_stream:
            self.batches.epoch += 1

    def check(self):
        digest, means = digest_of(getattr(self.dataset, "to_check", list)()), []
        for batch in self:
            images = [t for t in batch if torch.is_tensor(t) and t.dim() == 4]
            for t in images:
                means.append([t.mean(dtype=torch.float64).item(),
                              t[..., :t.shape[-1] // 2].mean(dtype=torch.float64).item()])
            found = digest_of(batch[len(images):])  # an image is the first part of a batch
            digest = (digest * (1 if self.is_stream else 31) + found) % 2**64
        return {"digest": str(digest), "means": np.mean(means or [[0, 0]], 0).tolist()}

    def run(self, passes):
        ms = []
        for _ in range(passes):
            start = time.perf_counter()
            for _ in self:
                pass
            ms.append(1e3 * (time.perf_counter() - start))
        return {"ms": ms}


def answer(line):
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--file", required=True)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--way", default="", help="a variant of a case of loader_files.py")
    parser.add_argument("--engine", default="torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    passes = Passes(arguments.case, arguments.file, arguments.workers, arguments.prefetch,
                    arguments.way)
    version = getattr(passes.dataset, "version", torch.__version__)
    answer({"engine": arguments.engine, "version": version})
    for line in sys.stdin:
        request, *count = line.split()
        if request == "quit":
            break
        answer(passes.check() if request == "check" else passes.run(int(count[0])))
    del passes  # destroying the iterators ends the workers


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # the script that started this process reports it
        answer({"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    os._exit(0)  # exits immediately, because the compiler's workers need seconds to end
