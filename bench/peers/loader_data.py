"""Files for the cases of bench_loader (bench/loader_cases.h), with the same contents in each run."""

import csv
import json
import pathlib
import random
import subprocess
import sys

JPEGS, CLASSES = 512, 64
ROWS = 96_000  # rows of a table, in two files of full batches
# The numbers of words of a text, most of which are short.
LENGTHS = (4, 8, 12, 20, 40, 80)


def random_bytes(path):
    path.write_bytes(random.Random(1).randbytes(1 << 26))


def jpeg_folder(folder):
    """Writes images of about 500 x 375 with colors that change slowly, noise, and a gradient from left
    to right, so that a flip changes the mean of the left half."""
    import numpy as np
    import PIL.Image

    source = np.random.default_rng(1)
    noise = source.normal(0, 12, (426, 561, 1)) + source.normal(0, 4, (426, 561, 3))
    noise = noise.astype(np.float32)
    for i in range(JPEGS):
        height, width = source.integers(325, 426), source.integers(440, 561)
        coarse = PIL.Image.fromarray(source.integers(64, 192, (9, 12, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((width, height), PIL.Image.BICUBIC)).astype(np.float32)
        pixels += np.roll(noise, i * 17, axis=(0, 1))[:height, :width]
        pixels += np.linspace(-24, 24, width, dtype=np.float32)[:, None]
        image = PIL.Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        path = folder / f"{i % CLASSES:02}" / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=90)


def rows():
    source = random.Random(1)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyzé", k=source.randint(2, 10)))
             for _ in range(5000)]
    for _ in range(ROWS):
        text = " ".join(source.choices(words, k=source.choice(LENGTHS)))
        if source.random() < 0.5:  # a text that needs quotes
            text = text.replace(" ", ", ", 1) + ' "quoted".'
        yield {"text": text, "label": source.randrange(5)}


def tables(folder):
    """Writes the rows to rows.csv and rows.jsonl, and the halves to 0.csv, 1.csv, 0.jsonl, 1.jsonl."""
    folder.mkdir()
    all_rows = list(rows())
    half = len(all_rows) // 2
    for name, part in (("rows", all_rows), ("0", all_rows[:half]), ("1", all_rows[half:])):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(part)
        with open(folder / f"{name}.jsonl", "w") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in part)


MAKE = {"random.bin": random_bytes, "jpegs": jpeg_folder, "tables": tables}


class Files:
    """Writes the file or folder of a case when it is needed first, with the interpreter `python`, which
    has NumPy and Pillow."""

    def __init__(self, folder, python):
        self.folder, self.python = folder, python

    def of(self, case):
        if case == "jpeg_folder":
            name = "jpegs"
        elif case.startswith(("csv", "json_lines")):
            name = "tables"
        else:
            name = "random.bin"
        path = self.folder / name
        if not path.exists():
            subprocess.run([self.python, __file__, path], check=True)
        return path


if __name__ == "__main__":
    to = pathlib.Path(sys.argv[1])
    MAKE[to.name](to)
