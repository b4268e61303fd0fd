"""Compares passes of data loaders for bench/peers/compare --loader.

Every engine is a long-running process. Its first pass must have the same rows in the same order as
the passes of the other engines, and images with the same mean. Then the engines run a few passes
each in turn.
"""

import pathlib
import statistics
import sys
import tempfile

from loader_data import Files
from worker import KEEPING, Failed, Worker

CASES = ("small64", "small512", "cifar", "images", "tokens", "jpeg_folder", "csv", "json_lines",
         "csv_stream", "json_lines_stream")
WORKERS = (0, 2)
# The allowed differences of the means of images and of their left halves, because augmentation is
# random.
TOLERANCE = {"cifar": 0.02, "jpeg_folder": 0.05}
ROUND_MS = 800


def peers(case, workers):
    """Returns variants of PyTorch: options of loader.py, and environment variables."""
    if case == "jpeg_folder":
        return {"torchvision": ([], {}), "torchvision.pil": (["--way", "pil"], {})}
    if case.startswith(("csv", "json_lines")):
        return {"datasets": ([], {}), "datasets.arrow": (["--way", "arrow"], {})}
    if workers > 0:
        return {"torch": ([], {}), "torch.prefetch4": (["--prefetch", "4"], {})}
    found = {"torch": ([], {})}
    if case in ("cifar", "images"):
        found["torch.threads"] = (["--threads", "2"], {})
        found["torch.malloc"] = ([], KEEPING)
    return found


class Row:
    def __init__(self, case, workers, path, program, python):
        self.case, self.workers = case, workers
        options = ["--case", case, "--workers", str(workers), "--file", str(path)]
        peer = [python, str(pathlib.Path(__file__).with_name("loader.py")), *options]
        self.engines, self.passes, self.ms = {}, {}, {}
        try:
            self.engines["axle"] = Worker([str(program), *options])
            for name, (extra, environment) in peers(case, workers).items():
                self.engines[name] = Worker([*peer, *extra, "--engine", name], **environment)
            self.verify()
        except Failed as error:
            self.stop()
            sys.exit(f"{case}, {workers} workers: {error}")

    def verify(self):
        """Compares a first pass of all engines, and sets the number of passes in a round."""
        found = {name: worker.ask("check") for name, worker in self.engines.items()}
        ours = found["axle"]
        for name, reply in found.items():
            apart = max(abs(a - b) for a, b in zip(ours["means"], reply["means"]))
            if reply["digest"] != ours["digest"] or apart > TOLERANCE.get(self.case, 1e-5):
                raise Failed(f"axle and {name} differ: {ours}, {reply}")
        for name, worker in self.engines.items():
            once = worker.ask("run 1")["ms"][0]
            self.passes[name] = max(1, min(50, round(ROUND_MS / once)))

    def round(self):
        for name, worker in self.engines.items():
            reply = worker.ask(f"run {self.passes[name]}")
            self.ms.setdefault(name, []).append(reply["ms"])

    def stop(self):
        for worker in self.engines.values():
            worker.stop()

    def summary(self):
        facts = self.engines["axle"].facts
        row = {"case": self.case, "workers": self.workers, "batches": facts["batches"],
               "memory_gbs": facts["memory_gbs"], "engines": {}}
        for name, rounds in self.ms.items():
            medians = [statistics.median(ms) for ms in rounds]
            ms = statistics.median(medians)
            row["engines"][name] = {
                "ms_per_pass": ms, "spread": (max(medians) - min(medians)) / ms,
                "batches_per_s": 1e3 * facts["batches"] / ms,
                "mb_per_s": 1e-3 * facts["handed_bytes"] / ms,
                "share": 1e-6 * facts["moved_bytes"] / ms / facts["memory_gbs"],
                "rounds": rounds,
            }
        of_peers = {n: e["batches_per_s"] for n, e in row["engines"].items() if n != "axle"}
        row["peer"] = max(of_peers, key=of_peers.get)
        row["ratio"] = row["engines"]["axle"]["batches_per_s"] / of_peers[row["peer"]]
        row["version"] = self.engines[row["peer"]].facts["version"]
        return row


def measure(arguments, python):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = Files(pathlib.Path(folder), python)
        for case in arguments.cases:
            for workers in arguments.workers:
                row = Row(case, workers, files.of(case), arguments.program, python)
                try:
                    for _ in range(arguments.rounds):
                        row.round()
                    rows.append(row.summary())
                finally:
                    row.stop()
                rates = ", ".join(f"{name} {engine['batches_per_s']:.4g}"
                                  for name, engine in rows[-1]["engines"].items())
                print(f"{case}, {workers} workers: {rates} batches/s, "
                      f"{rows[-1]['ratio']:.2f} times faster", flush=True)
    return rows


def table(rows, facts):
    lines = ["# Data loaders", ""]
    lines += [f"- {key}: {value}" for key, value in facts.items()] + [""]
    cells = ["case", "workers", "axle, batches/s", "MB/s", "share of memory", "spread",
             "best peer, batches/s", "spread", "which", "speedup"]
    lines += ["| " + " | ".join(cells) + " |", "|" + "---|" * len(cells)]
    for row in rows:
        ours, peer = row["engines"]["axle"], row["engines"][row["peer"]]
        cells = [row["case"], str(row["workers"]), f"{ours['batches_per_s']:.4g}",
                 f"{ours['mb_per_s']:.4g}", f"{100 * ours['share']:.0f}%",
                 f"{100 * ours['spread']:.0f}%", f"{peer['batches_per_s']:.4g}",
                 f"{100 * peer['spread']:.0f}%", row["peer"], f"{row['ratio']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "Each figure is the median over rounds, which alternate between the programs, of the median over",
        "passes. MB/s counts the returned batches. The share of memory is the rate at which source and batch",
        "bytes are read and written, divided by the measured memory bandwidth. bench/loader.cpp describes the",
        "cases. With 2 workers, PyTorch's prefetch_factor is 2 or 4. Without workers, images are also prepared",
        "with two threads (torch.threads) or with an allocator that keeps its memory (torch.malloc).",
        "",
        "The peers of jpeg_folder are torchvision.transforms.v2 with decode_jpeg or with Pillow (torchvision.pil),",
        "and the peers of tables are Hugging Face datasets with rows as lists or as columns of Arrow",
        "(datasets.arrow). The time in which a table is opened is not included. With 2 workers, each worker of the",
        "peer reads one of the two files of a stream, so the order of batches differs; Axle keeps it.",
    ]
    return "\n".join(lines) + "\n"
