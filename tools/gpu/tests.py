"""Runs cases of a GoogleTest program, and returns a result for each case even if the process dies.

After an invalid memory access in a kernel, the CUDA context of the process can't be used, and all
later cases would fail. So a process ends after the first case that dies, hangs or breaks the
context, and the remaining cases run in a new process.
"""

import concurrent.futures
import dataclasses
import os
import queue
import re
import signal
import subprocess
import threading
import time

PATIENCE = 150  # seconds without a line of output, after which a case is ended
LATE = "not reached in the part's time"
# A warning of Axle contains this text if a library is missing or refuses a call.
FALLBACK = "slower, because a library cannot be used"
BROKEN_CONTEXT = re.compile(
    "cudaError(IllegalAddress|LaunchFailure|MisalignedAddress|IllegalInstruction|InvalidPc|"
    "InvalidAddressSpace|HardwareStackError|Assert|LaunchTimeout|EccUncorrectable|Unknown)")


Silence = queue.Empty  # raised if no line is read within the timeout


@dataclasses.dataclass
class Verdict:
    test: str
    passed: bool | None  # None if the case was skipped or was not reached in time
    reason: str = ""


def names_of(program):
    """Returns the names of all cases, in the format of --gtest_filter."""
    done = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True,
                          timeout=120, check=True)
    names, suite = [], ""
    for line in done.stdout.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


def end(process):
    """Kills a process and the processes that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Lines:
    """Reads the output of a process line by line, with a timeout."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=environment, start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with self.process.stdout as output:
            for line in output:
                self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def next(self, seconds):
        """Returns the next line, or None at the end of the output. Raises Silence on a timeout."""
        return self.lines.get(timeout=max(0.01, seconds))


def one_process(command, tests, environment, deadline):
    """Runs cases in a process until it ends or is killed. The caller runs the remaining cases."""
    lines = Lines([*command, "--gtest_filter=" + ":".join(tests)], environment)
    verdicts, current, said = [], None, []

    def judge(passed, reason=""):
        verdicts.append(Verdict(current, passed, reason))

    while True:
        try:
            line = lines.next(min(PATIENCE, deadline - time.monotonic()))
        except Silence:
            end(lines.process)
            late = time.monotonic() >= deadline
            if current:
                judge(False, "the part's time was up" if late else f"no output for {PATIENCE} s")
            return verdicts
        if line is None:
            lines.process.wait()
            if current or not verdicts:
                current = current or tests[0]
                status = lines.process.returncode
                judge(False, f"died, exit status {status}: {' | '.join(said[-3:])}")
            return verdicts
        mark = re.match(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^ ,(]+)", line)
        if not mark:
            said.append(line.strip())
            continue
        word, name = mark.groups()
        if word == "RUN":
            current, said = name, []
        elif name == current:
            reason = " | ".join(s for s in said if s)[:600]
            slower = next((s for s in said if FALLBACK in s), None)
            if word == "OK" and slower:
                judge(False, f"a fallback kernel ran: {slower}")
                current = None
                continue
            judge({"OK": True, "FAILED": False, "SKIPPED": None}[word],
                  "" if word == "OK" else reason)
            current = None
            if word == "FAILED" and BROKEN_CONTEXT.search(reason):
                end(lines.process)
                return verdicts


def run(command, tests, extra_environment, deadline):
    """Runs cases in as many processes as necessary, and returns a result for each case."""
    environment = {**os.environ, **extra_environment}
    verdicts, rest = [], list(tests)
    while rest:
        if time.monotonic() >= deadline:
            return verdicts + [Verdict(t, None, LATE) for t in rest]
        verdicts += one_process(command, rest, environment, deadline)
        seen = {v.test for v in verdicts}
        rest = [t for t in rest if t not in seen]
    return verdicts


def run_in_parallel(command, tests, extra_environment, deadline, jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(run, command, tests[i::jobs], extra_environment, deadline)
                for i in range(min(jobs, len(tests)))]
        return [v for r in runs for v in r.result()]
