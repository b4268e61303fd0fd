"""Runs GoogleTest cases under NVIDIA's compute-sanitizer."""

import glob
import os
import re
import shutil
import subprocess

from gpu.machine import Skipped


class Memcheck:
    """Runs a test program under compute-sanitizer's memcheck. Raises Skipped if it is missing."""

    def __init__(self, program):
        places = [shutil.which("compute-sanitizer"),
                  *sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer")),
                  *sorted(glob.glob("/usr/local/cuda*/compute-sanitizer/compute-sanitizer"))]
        tool = next((p for p in places if p and os.access(p, os.X_OK)), None)
        if not tool:
            raise Skipped("compute-sanitizer was not found")
        self.command = [tool, "--tool", "memcheck", "--report-api-errors", "no", "--print-limit",
                        "3", "--error-exitcode", "9", program]
        self.environment = {**os.environ, "AXLE_CUDA_CACHING": "0"}

    def run(self, tests, timeout):
        """Returns the number of errors (None without a summary) and the output of a run."""
        done = subprocess.run([*self.command, "--gtest_filter=" + ":".join(tests)],
                              env=self.environment, capture_output=True, text=True,
                              timeout=timeout)
        summary = re.search(r"ERROR SUMMARY: (\d+) error", done.stdout)
        return (int(summary.group(1)) if summary else None), done.stdout + done.stderr
