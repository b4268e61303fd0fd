"""Records random splits, weighted samples and padded sequences of PyTorch, for tests/data: writes
data.json.

    python record_data.py

"weighted" has one list of indices for each of three epochs. The generator of an epoch has the seed
`seed` + epoch. The sequences of "padded" are consecutive numbers from 1 on, in the shapes "shapes".
"""

import json
import math
import pathlib

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import WeightedRandomSampler, random_split

FOLDER = pathlib.Path(__file__).parent
EPOCHS = 3


def generator(seed):
    return torch.Generator().manual_seed(seed)


def split(n, lengths, seed):
    parts = random_split(range(n), lengths, generator(seed))
    return {"n": n, "lengths": lengths, "seed": seed, "parts": [part.indices for part in parts]}


def weighted(weights, num_samples, replacement, seed):
    return {
        "weights": weights,
        "num_samples": num_samples,
        "replacement": replacement,
        "seed": seed,
        "epochs": [
            list(WeightedRandomSampler(weights, num_samples, replacement, generator(seed + epoch)))
            for epoch in range(EPOCHS)
        ],
    }


def padded(shapes, batch_first, padding_value, padding_side):
    sequences, first = [], 1
    for shape in shapes:
        size = math.prod(shape)
        sequences.append(torch.arange(first, first + size).reshape(shape))
        first += size
    batch = pad_sequence(sequences, batch_first, padding_value, padding_side)
    return {
        "shapes": shapes,
        "batch_first": batch_first,
        "padding_value": padding_value,
        "padding_side": padding_side,
        "shape": list(batch.shape),
        "values": batch.flatten().tolist(),
    }


def main():
    waves = [round(1 + math.sin(i), 3) for i in range(60)]
    recorded = {
        "source": f"torch {torch.__version__}",
        "random_split": [
            split(10, [7, 3], 0),
            split(10, [0, 10, 0], 5),
            split(10, [0.5, 0.25, 0.25], 42),
            split(11, [0.7, 0.2, 0.1], 42),
            split(30, [0.3, 0.3, 0.4], 1234567),
            split(5, [0.26, 0.24, 0.26, 0.24], 1),
            split(11, [0.25, 0.25, 0.25, 0.25], 9),
            split(3, [1.0], 7),
        ],
        "weighted": [
            weighted([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 9, True, 42),
            weighted([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 5, False, 42),
            weighted([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 6, False, 3),
            weighted([0.0, 1.0, 0.0, 2.0, 0.0], 8, True, 7),
            weighted([0.0, 1.0, 0.0, 2.0, 0.0], 2, False, 7),
            weighted([0.9, 0.4, 0.05, 0.2, 0.3, 0.1], 1, True, 11),
            weighted([2.0], 3, True, 0),
            weighted(waves, 40, True, 123456),
            weighted(waves, 40, False, 123456),
        ],
        "pad_sequence": [
            padded([[3], [5], [2]], False, 0, "right"),
            padded([[3], [5], [2]], True, -100, "left"),
            padded([[2, 3], [0, 3], [1, 3]], True, 7, "right"),
            padded([[2, 3], [0, 3], [1, 3]], False, 7, "left"),
            padded([[1, 2, 2], [2, 2, 2]], False, 2.5, "right"),
        ],
    }
    keys = [key for key in recorded if key != "source"]
    text = f'{{\n "source": {json.dumps(recorded["source"])}'
    for key in keys:
        cases = ",\n".join("  " + json.dumps(case) for case in recorded[key])
        text += f',\n "{key}": [\n{cases}\n ]'
    (FOLDER / "data.json").write_text(text + "\n}\n")


if __name__ == "__main__":
    main()
