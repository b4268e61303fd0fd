"""The parts of tools/gpu_gate."""

import datetime
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from gpu import floors
from gpu import tests as gpu_tests
from gpu.machine import Broken, chip_of, digest_of_sources, text_of
from gpu.sanitizer import Sanitizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.setdefault("PYTHON", sys.executable or "python3")  # also for compare_gpu
SECONDS = 470  # time limit of a part; ending its processes takes a few more seconds
MOST_EAGER = 6  # steps of a compiled step that may run eagerly: the steps before the capture
# Tests that fail if the caching allocator is turned off.
NEED_CACHE = (
    "GpuMemory.CountsCurrentPeakAndReservedBytes",
    "GpuMemory.AllocatesNoDriverMemoryInASteadyState",
)
ENGINES = ["torch", "torch.compile", "axle", "axle.compile"]
# The engines that are compared in cases whose speed is limited by the host.
ALL_ENGINES = [*ENGINES, "torch.compile.reduce-overhead", "torch.graph"]


class Gate:
    def __init__(self, arguments, gpu, manifest):
        self.packed = manifest is not None
        self.root = arguments.packed if self.packed else ROOT
        self.build = arguments.packed if self.packed else arguments.build
        self.gpu = gpu
        self.path = arguments.results / f"gpu-{chip_of(gpu['gpu'])}.json"
        self.record = {"facts": {}, "parts": [], "rows": []}
        if self.path.exists():
            self.record = json.loads(self.path.read_text())
        self.sources = manifest["sources"] if self.packed else digest_of_sources(ROOT)
        commit = manifest["commit"] if self.packed else (
            text_of("git", "-C", str(ROOT), "describe", "--always", "--dirty") or "unknown")
        self.record["facts"].update(gpu, commit=commit, sources=self.sources)
        self.part, self.rows, self.deadline = "", [], 0.0
        self.built = {}
        self.torch = text_of(PYTHON, "-c", "import torch; assert torch.cuda.is_available(); "
                             "print(torch.__version__)")

    def say(self, text):
        print(f"{self.part}: {text}", flush=True)

    def row(self, op, passed, reason="", **more):
        row = dict.fromkeys(("dtype", "shape", "ms", "roof_share", "peer", "peer_ms", "ratio"))
        self.rows.append({"part": self.part, "op": op, **row, **more, "passed": passed,
                          "reason": reason})
        if passed is False:
            self.say(f"{op} {more.get('shape') or ''} failed: {reason}")

    def left(self):
        return max(1.0, self.deadline - time.monotonic())

    def program(self, name):
        """Returns the path of a program. Builds it if necessary; this time is not counted."""
        path = self.build / "bin" / name
        if name in self.built or path.exists():
            return str(path)
        if self.packed:
            raise Broken(f"a program is missing: {path}")
        if not shutil.which("cmake"):
            raise Broken(f"{name} is not built, and cmake was not found")
        begin = time.monotonic()
        self.say(f"builds {name}")
        configure = ["cmake", "-S", str(ROOT), "-B", str(self.build), "-DCMAKE_BUILD_TYPE=Release"]
        if shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        make = ["cmake", "--build", str(self.build), "--target", name, "--parallel",
                str(os.cpu_count())]
        fresh = not (self.build / "CMakeCache.txt").exists()
        for command in [configure, make] if fresh else [make]:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
                raise Broken(f"{name} cannot be built: {' '.join(last)}")
        self.deadline += time.monotonic() - begin
        self.built[name] = True
        return str(path)

    def tests(self):
        """Returns the cases of test_cuda by part. Cases without a part are in "ops"."""
        words = {"graphs": ("Graph", "Compiled"), "training": ("Training", "ModelParallel"),
                 "determinism": ("Determin",), "allocator": ("Memory", "Stream", "Alloc"),
                 "nccl": ("Nccl", "GroupOnGpu")}
        parts = {"ops": [], **{part: [] for part in words}}
        for test in gpu_tests.names_of(self.program("test_cuda")):
            suite = test.partition(".")[0]
            found = (p for p, some in words.items() if any(w in suite for w in some))
            parts[next(found, "ops")].append(test)
        return parts

    def judge(self, verdicts, what=""):
        """Adds a row for the passed cases, one for the unreached cases, one for each other case."""
        late = sum(v.reason == gpu_tests.LATE for v in verdicts)
        if late:
            self.row(f"{late} cases{what}", False, gpu_tests.LATE)
        for v in verdicts:
            if v.reason == gpu_tests.LATE:
                continue
            if not v.passed:
                self.row(v.test + what, v.passed, v.reason)
        passed = sum(v.passed is True for v in verdicts)
        if passed:
            self.row(f"{passed} cases{what}", True)
        self.say(f"{passed} of {len(verdicts)} cases passed{what}")

    def run_tests(self, tests, environment=None, what="", jobs=1):
        if not tests:
            raise Broken("test_cuda has no cases for this part")
        self.judge(gpu_tests.run_in_parallel([self.program("test_cuda")], tests, environment or {},
                                             self.deadline, jobs), what)

    # --- parts

    def libraries(self):
        """Checks that NVIDIA's libraries are found and compute one call of each kind."""
        checked = 0
        for line in self.lines([self.program("bench_gpu_kernels"), "--check"]):
            self.say(line)
            if gpu_tests.FALLBACK in line:
                self.row("libraries", False, f"a fallback kernel ran: {line}")
            if not line.startswith("{"):
                continue
            r = json.loads(line)
            reason = r.get("error", "")
            if "library" in r and not r["found"]:
                reason = f"a library is missing: {r['library']}: {reason}"
            self.row(r.get("library") or r["probe"], not reason, reason)
            checked += 1
        if not checked:
            raise Broken("bench_gpu_kernels --check printed nothing")
        self.row("PyTorch", bool(self.torch), "" if self.torch else
                 f"a library is missing: {PYTHON} has no PyTorch with access to the GPU")

    def ops(self):
        self.run_tests(self.tests()["ops"], jobs=min(4, os.cpu_count() or 1))

    def training(self):
        self.run_tests(self.tests()["training"])

    def graphs(self):
        self.run_tests(self.tests()["graphs"])

    def allocator(self):
        tests = self.tests()
        self.run_tests(tests["allocator"])
        more = tests["allocator"] + tests["training"]
        self.run_tests([t for t in more if t not in NEED_CACHE], {"AXLE_CUDA_CACHING": "0"},
                       " without the cache")
        self.run_tests(more, {"AXLE_CUDA_EXPANDABLE": "0"}, " in plain segments")

    def nccl(self):
        """Runs the tests of NCCL. Cases are skipped if they need more GPUs or if NCCL is missing."""
        self.run_tests(self.tests()["nccl"])

    def determinism(self):
        """Checks that two runs, and a run that replays a graph, end with the same bits."""
        tests = self.tests()["determinism"]
        if tests:
            self.run_tests(tests)
        program = self.program("bench_train_step")
        for model, dtype, batch in (("mlp", "f32", 0), ("lenet", "f32", 0), ("resnet18", "bf16", 0),
                                    ("char-gpt", "bf16", 0), ("gpt2-124m", "bf16", 2)):
            command = [program, "--serve", "--deterministic", "--model", model, "--dtype", dtype,
                       "--batch", str(batch)]
            ends = []
            for extra in ([], [], ["--compile"]):
                done = subprocess.run(command + extra, input="check 6\nrun 6\ndigest\nquit\n",
                                      capture_output=True, text=True, timeout=self.left())
                lines = [json.loads(line) for line in done.stdout.splitlines()]
                wrong = next((line["error"] for line in lines if "error" in line), None)
                if wrong or len(lines) != 4:
                    ends = wrong or f"exit status {done.returncode}"
                    break
                ends.append((lines[1]["losses"], lines[3]["digest"]))
                if extra and not lines[2].get("replays"):
                    ends = "the compiled step stayed eager"
                    break
            same = isinstance(ends, list) and ends[0] == ends[1] == ends[2]
            self.row("the same bits from two runs and a graph", same, "" if same else str(ends),
                     dtype=dtype, shape=model)
            self.say(f"{model} {dtype}: {'the same bits' if same else 'DIFFERENT'}")

    def sanitize(self, tool):
        sanitizer = Sanitizer(tool, self.program("test_cuda"), os.environ)
        count, output = sanitizer.run(["GpuDevices.AreParsedAndValidated"], self.left())
        if count is None:
            last = (output.strip().splitlines() or ["no output"])[-1]
            raise Broken(f"compute-sanitizer does not work here: {last}")
        tests = [t for part, some in self.tests().items()
                 if part not in ("graphs", "nccl") for t in some]
        tests = [t for t in tests if t not in NEED_CACHE]
        random.Random(1).shuffle(tests)
        seen = errors = 0
        while seen < len(tests) and self.left() > SECONDS / 4:
            batch = tests[seen:seen + 12]
            try:
                count, output = sanitizer.run(batch, self.left())
            except subprocess.TimeoutExpired:
                break
            seen += len(batch)
            if count != 0:
                found = [line.strip("= \t") for line in output.splitlines() if "=========" in line]
                self.row(" ".join(batch), False, " | ".join(found[1:8]) or "no summary")
                errors += 1
            self.say(f"{seen} of {len(tests)} cases")
            if errors >= 5:
                break
        self.row(f"{seen} of {len(tests)} cases under {tool}", seen > 0 and errors == 0,
                 "" if seen else "no case ended in time")

    def memcheck(self):
        self.sanitize("memcheck")

    def racecheck(self):
        self.sanitize("racecheck")

    def synccheck(self):
        self.sanitize("synccheck")

    def lines(self, command):
        """Yields the output lines of a command. Raises Broken on a failure or a timeout."""
        lines = gpu_tests.Lines(command)
        try:
            while (line := lines.next(self.left())) is not None:
                yield line
            status = lines.process.wait(timeout=30)
        except (gpu_tests.Silence, subprocess.TimeoutExpired):
            raise Broken("not done in time") from None
        finally:
            gpu_tests.end(lines.process)
        if status != 0:
            raise Broken(f"{pathlib.Path(command[0]).name}: exit status {status}")

    def kernels(self):
        for line in self.lines([self.program("bench_gpu_kernels")]):
            if not line.startswith("{"):
                self.say(line)
                if gpu_tests.FALLBACK in line:
                    self.row("kernels", False, f"a fallback kernel ran: {line}")
                continue
            r = json.loads(line)
            if "op" in r:
                reason = floors.failure_of(r)
                self.row(r["op"], not reason, reason, dtype=r["dtype"], shape=r["shape"],
                         ms=r.get("ms"), roof_share=r.get("roof_share"))
            else:
                self.record["facts"].update(r)
                self.say(line)

    def compare(self, models, dtype, *options, engines=ENGINES):
        program = self.program("bench_train_step")
        if not self.torch:
            engines = [e for e in engines if e.startswith("axle")]
        with tempfile.TemporaryDirectory() as scratch:
            found = pathlib.Path(scratch) / "rows.json"
            try:
                for line in self.lines([
                        str(self.root / "bench/peers/compare_gpu"), "--program", program, "--models",
                        *models, "--dtype", dtype, "--engines", *engines, "--json", str(found),
                        *options]):
                    self.say(line)
            finally:  # errors are reported in the rows
                for r in json.loads(found.read_text())["rows"] if found.exists() else []:
                    self.compared(r)

    def compared(self, r):
        ours, peer = r["engines"].get(r["ours"]), r["engines"].get(r["peer"])
        wrong = [f"{e}: {why}" for e, why in r["failed"].items() if e.startswith("axle")]
        compiled = r["engines"].get("axle.compile")
        if compiled and not compiled.get("replays"):
            wrong.append("axle.compile: the compiled step stayed eager")
        elif compiled and (compiled.get("eager_steps") or 0) > MOST_EAGER:
            wrong.append(f"axle.compile: {compiled['eager_steps']} steps stayed eager")
        others = [f"{e}: {why}" for e, why in r["failed"].items() if not e.startswith("axle")]
        passed = bool(ours and peer and not wrong)
        reason = "; ".join(wrong + others) or ("" if peer else "no PyTorch with access to the GPU")
        roof = self.record["facts"].get("roof_tflops")
        share = (r["flops"] / ours["ms"] * 1e-9 / roof
                 if ours and roof and r.get("flops") else None)
        shape = r["model"] + (f", batch {r['batch']}" if r["batch"] else "")
        self.row(f"training step, {r['ours']}", passed, reason, dtype=r["dtype"], shape=shape,
                 ms=ours and ours["ms"], roof_share=share, peer=r["peer"],
                 peer_ms=peer and peer["ms"], ratio=r["ratio"], in_turn=r["in_turn"],
                 engines=r["engines"], facts=r["facts"])

    def gpt2_124m(self):
        # Four engines keep their memory at the same time. In 80 GB they can have batches of 16.
        large = self.gpu["memory"] > 120 << 30
        self.compare(["gpt2-124m"], "bf16", "--batch", "32" if large else "16")

    def gpt2_124m_small(self):
        self.compare(["gpt2-124m"], "bf16", "--batch", "4", "--steps", "40", engines=ALL_ENGINES)

    def gpt2_350m(self):
        large = self.gpu["memory"] > 120 << 30
        self.compare(["gpt2-350m"], "bf16", "--batch", "64" if large else "32", "--steps", "10")

    def gpt2_1558m(self):
        large = self.gpu["memory"] > 120 << 30
        self.compare(["gpt2-1558m"], "bf16", "--batch", "16" if large else "4", "--steps", "6",
                     "--rounds", "2", "--warm-up", "5", "--alone")

    def mlp(self):
        self.compare(["mlp", "tiny-mlp"], "f32", "--steps", "500", "--warm-up", "100",
                     engines=ALL_ENGINES)

    # --- running the parts

    def has_passed(self, part):
        return any(p["part"] == part and p["passed"] and p["sources"] == self.sources
                   for p in self.record["parts"])

    def run(self, part):
        self.part, self.rows = part, []
        begin = time.monotonic()
        self.deadline = begin + SECONDS
        passed, reason = None, ""
        try:
            PARTS[part][0](self)
            failed = [r for r in self.rows if r["passed"] is False]
            skipped = [r for r in self.rows if r["passed"] is None]
            passed = not failed if len(skipped) < len(self.rows) or failed else None
            if not self.rows:
                passed, reason = False, "nothing ran"
            if failed:
                reason = f"{len(failed)} failed, for example {failed[0]['op']}: {failed[0]['reason']}"
            elif skipped:
                reason = f"{len(skipped)} skipped: {skipped[0]['reason']}"
        except (Broken, OSError, ValueError, subprocess.SubprocessError) as error:
            passed, reason = False, str(error)
        seconds = time.monotonic() - begin
        entry = {"part": part, "passed": passed, "reason": reason, "seconds": round(seconds, 1),
                 "sources": self.sources, "commit": self.record["facts"]["commit"],
                 "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds")}
        for key, mine in (("parts", [entry]), ("rows", self.rows)):
            self.record[key] = [r for r in self.record[key] if r["part"] != part] + mine
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.record, indent=1) + "\n")
        self.say(verdict(passed) + (f": {reason}" if reason else ""))
        return entry


# The most valuable parts are first.
PARTS = {
    "libraries": (Gate.libraries, "NVIDIA's libraries are found and compute what they should"),
    "ops": (Gate.ops, "every op case, compared with the CPU in f64"),
    "graphs": (Gate.graphs, "graphs and compiled steps equal eager ones"),
    "training": (Gate.training, "models train as on the CPU"),
    "kernels": (Gate.kernels, "share of the peak of each kernel, and the host's cost of an op"),
    "gpt2-124m": (Gate.gpt2_124m, "training steps compared with PyTorch; the batch fits 80 GB"),
    "gpt2-124m-small": (Gate.gpt2_124m_small, "the same with batch 4, which is limited by the host"),
    "memcheck": (Gate.memcheck, "compute-sanitizer memcheck on random cases"),
    "racecheck": (Gate.racecheck, "compute-sanitizer racecheck: races in shared memory"),
    "synccheck": (Gate.synccheck, "compute-sanitizer synccheck: invalid barriers"),
    "determinism": (Gate.determinism, "two runs and a replayed graph give the same bits"),
    "allocator": (Gate.allocator, "memory and streams; without the cache; in plain segments"),
    "nccl": (Gate.nccl, "collectives with one process per GPU"),
    "gpt2-350m": (Gate.gpt2_350m, "training steps of GPT-2 medium compared with PyTorch"),
    "gpt2-1558m": (Gate.gpt2_1558m, "training steps of the largest GPT-2 compared with PyTorch"),
    "mlp": (Gate.mlp, "very short steps compared with PyTorch, in f32"),
}


def verdict(passed):
    return {True: "passed", False: "FAILED", None: "skipped"}[passed]
