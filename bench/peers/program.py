"""One run of a program that prints a line of JSON."""

import json
import os
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
