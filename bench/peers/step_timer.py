"""Measures training steps, as StepTimer of bench/time_steps.h does."""

import re
import statistics
import sys
import time


def peak_resident_bytes():
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))


class StepTimer:
    """Runs the first steps and keeps their losses, and then some steps to warm up. step() returns
    the loss. measure() times `steps` steps."""

    def __init__(self, step, losses, steps):
        self.step, self.steps = step, steps
        self.losses = [float(step()) for _ in range(losses)]
        self.warm_up()

    def warm_up(self):
        for _ in range(1 + self.steps // 10):
            self.step()

    def measure(self):
        """Returns the first losses, the median and the minimum time of the steps in milliseconds,
        and the peak memory."""
        times = []
        for _ in range(self.steps):
            start = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - start))
        return {"steps": self.steps, "ms_per_step": statistics.median(times),
                "ms_per_step_min": min(times), "losses": self.losses,
                "peak_resident_bytes": peak_resident_bytes()}

    def take_turns(self, report):
        """For each line of the standard input, until the line is "quit", warms up and reports."""
        for line in sys.stdin:
            if line.strip() == "quit":
                return
            self.warm_up()
            report()
