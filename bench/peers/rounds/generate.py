"""Compares the generation of text with bench_generate and generate.py, which runs Transformers
(bench/peers/compare --generate).

The programs run in turn. They have models of the same sizes with random weights, so their tokens
differ; tests/nn/generation compares the sequences of both for recorded weights.
"""

import pathlib
import statistics
import sys

from program import run
from worker import KEEPING

MODELS = ("gpt2", "tinyllama")
PEERS = {"torch.dynamic": ["--cache", "dynamic"], "torch.static": ["--cache", "static"],
         "torch.compile": ["--cache", "static", "--compile"]}
FIGURES = ("ms_per_prompt", "prompt_tokens_per_s", "ms_per_step", "new_tokens_per_s")


def row_of(model, dtype, batch, arguments, python):
    options = ["--model", model, "--dtype", dtype, "--batch", str(batch),
               "--threads", str(arguments.threads), "--layers", str(arguments.layers),
               "--prompt", str(arguments.prompt), "--tokens", str(arguments.tokens),
               "--rounds", "2"]
    peer = str(pathlib.Path(__file__).with_name("generate.py"))
    engines = {"axle": ([str(arguments.program)], {})}
    for name in arguments.generate_peers:
        engines[name] = ([python, peer, *PEERS[name]], KEEPING)
    runs = [run(engine, command + options, environment) for _ in range(arguments.rounds)
            for engine, (command, environment) in engines.items()]
    counts = {r["engine"]: r["parameters"] for r in runs}
    if len(set(counts.values())) != 1:
        sys.exit(f"{model}: the numbers of parameters differ: {counts}")
    row = {"model": model, "dtype": dtype, "batch": batch, "layers": runs[0]["layers"],
           "parameters": runs[0]["parameters"], "runs": runs}
    rate = max(r["memory_gbs"] for r in runs if "memory_gbs" in r)
    for engine in engines:
        mine = [r for r in runs if r["engine"] == engine]
        row[engine] = {name: statistics.median(r[name] for r in mine) for name in FIGURES}
        row[engine]["share_of_bandwidth"] = (
            1e-6 * mine[0]["read_bytes_per_step"] / row[engine]["ms_per_step"] / rate)
        row[engine]["peak_resident_bytes"] = max(r["peak_resident_bytes"] for r in mine)
    row["memory_gbs"] = rate
    row["best"] = min((e for e in engines if e != "axle"), key=lambda e: row[e]["ms_per_step"])
    row["ratio"] = row[row["best"]]["ms_per_step"] / row["axle"]["ms_per_step"]
    row["prompt_ratio"] = (min(row[e]["ms_per_prompt"] for e in engines if e != "axle")
                           / row["axle"]["ms_per_prompt"])
    return row


def measure(arguments, python):
    rows = []
    for model in arguments.generate:
        for dtype in arguments.dtypes:
            for batch in arguments.batches:
                row = row_of(model, dtype, batch, arguments, python)
                rows.append(row)
                rates = ", ".join(f"{e} {row[e]['new_tokens_per_s']:.4g}"
                                  for e in ("axle", *arguments.generate_peers))
                print(f"{model} {dtype} batch {batch}: {rates} new tokens/s, "
                      f"{row['ratio']:.2f} times faster", flush=True)
    return rows


def version(rows):
    peer = next(r for r in rows[0]["runs"] if r["engine"] != "axle")
    return f"{peer['version']} ({peer['capability']}), Python {peer['python']}"


def table(rows, facts, arguments):
    lines = ["# Generation of text on the CPU", ""]
    lines += [f"- {key}: {value}" for key, value in facts.items()] + [""]
    cells = ["model", "layers", "dtype", "batch", "axle, prompt tokens/s", "speedup",
             "axle, new tokens/s",
             *(f"{peer}, new tokens/s" for peer in arguments.generate_peers),
             "speedup over the best", "axle, share of bandwidth", "best peer, share of bandwidth",
             "axle, MB", "best peer, MB"]
    lines += ["| " + " | ".join(cells) + " |", "|" + "---|" * len(cells)]
    for row in rows:
        ours, best = row["axle"], row[row["best"]]
        cells = [row["model"], str(row["layers"]), row["dtype"], str(row["batch"]),
                 f"{ours['prompt_tokens_per_s']:.4g}", f"{row['prompt_ratio']:.2f}",
                 f"{ours['new_tokens_per_s']:.4g}",
                 *(f"{row[peer]['new_tokens_per_s']:.4g}" for peer in arguments.generate_peers),
                 f"{row['ratio']:.2f}",
                 *(f"{100 * e['share_of_bandwidth']:.0f} %" for e in (ours, best)),
                 *(f"{e['peak_resident_bytes'] / 1e6:.0f}" for e in (ours, best))]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"Each sequence has a prompt of {arguments.prompt} tokens and {arguments.tokens} new "
              "tokens (greedy). Each figure is the median over runs, which alternate between the "
              "programs, of the best of two generations: the first step for prompts, and the median "
              "over the later steps for new tokens. The share of bandwidth is the rate at which a step "
              "reads the weights, divided by the rate at which the threads read memory. MB is the "
              "largest resident set size, which includes the creation of the weights in f32."]
    return "\n".join(lines) + "\n"
