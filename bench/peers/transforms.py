#!/usr/bin/env python3
"""Measures the transforms of bench_transforms in torchvision.transforms.v2, and prints a line of JSON.

Transforms tensors of bytes one by one on one thread, as a worker of a DataLoader does. With --way pil,
transforms images of Pillow.
"""

import argparse
import json
import platform
import time

import torch
import torchvision
from torchvision.transforms import InterpolationMode, v2

IMAGES, HEIGHT, WIDTH = 32, 256, 320
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def images():
    """The images of bench_transforms."""
    n, c, y, x = torch.meshgrid(*(torch.arange(size) for size in (IMAGES, 3, HEIGHT, WIDTH)),
                                indexing="ij")
    return ((x + y) // 4 + 40 * c + (3 * n + x * y) % 16).to(torch.uint8)


def transforms():
    bicubic = InterpolationMode.BICUBIC
    return {
        "resize": v2.Resize((224, 224)),
        "resize_bicubic": v2.Resize((224, 224), bicubic),
        "random_resized_crop": v2.RandomResizedCrop(224),
        "horizontal_flip": v2.RandomHorizontalFlip(1),
        "color_jitter": v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        "rand_augment": v2.RandAugment(),
        "trivial_augment": v2.TrivialAugmentWide(),
        "gaussian_blur": v2.GaussianBlur(23, (0.1, 2.0)),
        "random_erasing": v2.RandomErasing(p=1),
        "to_float_normalize": v2.Compose([v2.ToDtype(torch.float32, scale=True),
                                          v2.Normalize(MEAN, STD)]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--way", choices=("tensor", "pil"), default="tensor")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rows = list(images())
    pictures = [v2.functional.to_pil_image(row) for row in rows]
    cases = {}
    for name, transform in transforms().items():
        takes_pictures = arguments.way == "pil" and name not in ("random_erasing",
                                                                  "to_float_normalize")
        best = float("inf")
        for _ in range(arguments.rounds):
            start = time.perf_counter()
            for row in pictures if takes_pictures else rows:
                result = transform(row)
            best = min(best, 1e3 * (time.perf_counter() - start))
        if takes_pictures:
            result = v2.functional.pil_to_tensor(result)
        cases[name] = {"ms": best, "mean": result.float().mean().item()}
    print(json.dumps({"engine": "torchvision", "images": IMAGES, "cases": cases,
                      "version": f"{torchvision.__version__}, PyTorch {torch.__version__}, "
                                 f"Python {platform.python_version()}"}))


if __name__ == "__main__":
    main()
