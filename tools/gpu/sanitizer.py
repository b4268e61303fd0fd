"""Runs GoogleTest cases under NVIDIA's compute-sanitizer."""

import glob
import os
import re
import shutil
import signal
import subprocess

from gpu.machine import Broken

# memcheck and synccheck print the first line, racecheck prints the second line.
SUMMARIES = (re.compile(r"ERROR SUMMARY: (\d+) error"),
             re.compile(r"RACECHECK SUMMARY: (\d+) hazard"))
OPTIONS = {"memcheck": ["--report-api-errors", "no"], "racecheck": ["--racecheck-report", "all"],
           "synccheck": []}


def find_sanitizer():
    """Returns the path of compute-sanitizer. Raises Broken if it is missing."""
    places = [shutil.which("compute-sanitizer"),
              *sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer")),
              *sorted(glob.glob("/usr/local/cuda*/compute-sanitizer/compute-sanitizer"))]
    tool = next((p for p in places if p and os.access(p, os.X_OK)), None)
    if not tool:
        raise Broken("compute-sanitizer was not found: install cuda-sanitizer")
    return tool


def errors_in(output):
    """Returns the number of errors in the summary of a run, or None without a summary."""
    counts = [int(m.group(1)) for pattern in SUMMARIES for m in [pattern.search(output)] if m]
    return sum(counts) if counts else None


class Sanitizer:
    """Runs a test program under one tool: memcheck, racecheck or synccheck."""

    def __init__(self, tool, program, environment):
        self.command = [find_sanitizer(), "--tool", tool, *OPTIONS[tool], "--print-limit", "3",
                        "--error-exitcode", "9", program]
        self.environment = {**environment, "AXLE_CUDA_CACHING": "0"}

    def run(self, tests, timeout):
        """Returns the number of errors (None without a summary) and the output of a run.

        Raises subprocess.TimeoutExpired, after killing the program, if it takes too long.
        """
        process = subprocess.Popen(
            [*self.command, "--gtest_filter=" + ":".join(tests)], env=self.environment, text=True,
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return errors_in(output), output
