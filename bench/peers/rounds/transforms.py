"""Compares bench_transforms with torchvision.transforms.v2 (bench/peers/compare --transforms).

The programs run in turn. They draw other random numbers, so the means of images are compared only where
a transform is not random; tests/data compares bytes.
"""

import pathlib
import statistics
import sys

from program import run

PEERS = {"torchvision": [], "torchvision.pil": ["--way", "pil"]}
EXACT = ("resize", "resize_bicubic", "horizontal_flip", "to_float_normalize")


def measure(arguments, python):
    peer = str(pathlib.Path(__file__).with_name("transforms.py"))
    commands = {"axle": [str(arguments.program)],
                **{name: [python, peer, *options] for name, options in PEERS.items()}}
    runs = [run(engine, command, {}) for _ in range(arguments.rounds)
            for engine, command in commands.items()]
    rows = []
    for name in runs[0]["cases"]:
        row = {"case": name, "images": runs[0]["images"]}
        for engine in commands:
            row[engine] = statistics.median(r["cases"][name]["ms"] for r in runs
                                            if r["engine"] == engine)
        means = [r["cases"][name]["mean"] for r in runs]
        if name in EXACT and max(means) - min(means) > 0.5:
            sys.exit(f"{name}: the means of the last image differ: {means}")
        row["best"] = min(PEERS, key=row.get)
        row["ratio"] = row[row["best"]] / row["axle"]
        rows.append(row)
        print(f"{name}: " + ", ".join(f"{e} {row[e]:.4g}" for e in commands) +
              f" ms, {row['ratio']:.2f} times faster", flush=True)
    return rows, next(r["version"] for r in runs if "version" in r)


def table(rows, facts):
    lines = ["# Transforms of images", ""]
    lines += [f"- {key}: {value}" for key, value in facts.items()] + [""]
    cells = ["transform", "axle, images/s", *(f"{peer}, images/s" for peer in PEERS),
             "speedup over the best"]
    lines += ["| " + " | ".join(cells) + " |", "|" + "---|" * len(cells)]
    for row in rows:
        rates = [f"{1e3 * row['images'] / row[engine]:.4g}" for engine in ("axle", *PEERS)]
        lines.append("| " + " | ".join([row["case"], *rates, f"{row['ratio']:.2f}"]) + " |")
    lines += ["", "One thread transforms 32 images of 3 x 256 x 320 bytes one by one, as a worker of a "
              "loader does. Each figure is the median over runs, which alternate between the programs, "
              "of the fastest pass. torchvision.pil transforms images of Pillow, except for the last "
              "two rows."]
    return "\n".join(lines) + "\n"
