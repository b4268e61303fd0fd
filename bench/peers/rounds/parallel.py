"""Compares training steps of a Llama whose tensors or sequences are divided among processes, with
bench_parallel_step and parallel_step.py (bench/peers/compare --parallel).

PyTorch divides tensors with parallelize_module. Its context_parallel does not support attention on
CPUs, so divided sequences are compared with one process of PyTorch, which uses as many threads as
the processes of Axle have together.
"""

import pathlib
import statistics
import sys

from program import run
from worker import KEEPING

WAYS = ("none", "tensor", "allgather", "alltoall")
# The largest relative difference between losses of the engines. Their rounding errors differ.
TOLERANCE = 1e-4


def commands(way, arguments, python):
    """Returns the commands of the engines and their environment variables."""
    count, threads = arguments.processes, arguments.threads
    folder = arguments.program.parent
    ours = [str(folder / "bench_parallel_step"), "--parallel", way]
    peer = [str(pathlib.Path(__file__).with_name("parallel_step.py"))]
    if way == "none":
        ours += ["--threads", str(threads * count)]
    else:
        ours = [str(folder / "axle"), "launch", "--quiet", "--cpu", "--num_processes", str(count),
                *ours, "--threads", str(threads)]
    found = {"axle": (ours, {})}
    if way == "tensor":
        divided = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
                   str(count), *peer, "--parallel", "tensor", "--threads", str(threads)]
        found["torch"] = (divided, KEEPING)
    found["torch.one_process"] = ([python, *peer, "--threads", str(threads * count)], KEEPING)
    return found


def measure(arguments, python):
    """Returns the rows of the table. Exits if the losses of the engines differ."""
    rows = []
    for way in arguments.parallel:
        engines = commands(way, arguments, python)
        runs = [run(engine, command + ["--steps", str(arguments.steps)], environment)
                for _ in range(arguments.rounds)
                for engine, (command, environment) in engines.items()]
        row = {"parallel": way, "processes": 1 if way == "none" else arguments.processes,
               "runs": runs}
        for engine in engines:
            mine = [r for r in runs if r["engine"] == engine]
            row[engine] = {"ms_per_step": statistics.median(r["ms_per_step"] for r in mine),
                           "peak_resident_bytes": max(r["peak_resident_bytes"] for r in mine),
                           "losses": mine[0]["losses"]}
        row["difference_of_losses"] = max(
            abs(a - b) / abs(b) for engine in engines if engine != "axle"
            for a, b in zip(row["axle"]["losses"], row[engine]["losses"]))
        if not row["difference_of_losses"] < TOLERANCE:
            sys.exit(f"{way}: the losses differ: {[row[e]['losses'] for e in engines]}")
        rows.append(row)
        print(f"{way}: " + ", ".join(f"{e} {row[e]['ms_per_step']:.4g} ms" for e in engines),
              flush=True)
    return rows


def version(rows):
    peer = next(r for r in rows[0]["runs"] if r["engine"] != "axle")
    return f"{peer['version']} ({peer['capability']}), Python {peer['python']}"


def table(rows, facts):
    engines = ("axle", "torch", "torch.one_process")
    cells = ["divided", "processes", *(f"{e}, ms" for e in engines),
             *(f"{e}, MB" for e in engines), "difference of losses"]
    lines = ["# Training steps of a divided Llama on the CPU", ""]
    lines += [f"- {key}: {value}" for key, value in facts.items()] + [""]
    lines += ["| " + " | ".join(cells) + " |", "|" + "---|" * len(cells)]
    for row in rows:
        cells = [row["parallel"], str(row["processes"])]
        cells += [f"{row[e]['ms_per_step']:.4g}" if e in row else "" for e in engines]
        cells += [f"{row[e]['peak_resident_bytes'] / 1e6:.0f}" if e in row else "" for e in engines]
        lines.append("| " + " | ".join([*cells, f"{row['difference_of_losses']:.1e}"]) + " |")
    lines += ["", "The model has 4 layers of width 256, 8 heads with 4 key-value heads, and 4096 tokens "
              "in its vocabulary; a batch has 2 sequences of 512 tokens. Each figure is the median over "
              "runs, which alternate between the programs, of the median over steps. MB is the largest "
              "resident set size of rank 0. The column torch is parallelize_module over Gloo. "
              "torch.one_process uses all cores; both keep freed memory, as in cpu_train_step_amd.md. "
              "PyTorch's context_parallel does not support attention on CPUs. The difference is the "
              "largest relative difference of the first five losses, from the same weights and "
              "data."]
    return "\n".join(lines) + "\n"
