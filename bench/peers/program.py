"""One run of a program that prints a line of JSON, and the name of the CPU for results."""

import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys


def run(engine, command, environment):
    """Returns the JSON of the last line of output, with the engine's name. Exits on an error."""
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{done.stderr.strip()}\nexit status {done.returncode}")
    return {**json.loads(done.stdout.strip().splitlines()[-1]), "engine": engine}


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
