"""Worker: a long-running process of an engine. Several workers run in turn."""

import json
import os
import queue
import subprocess
import tempfile
import threading


# Variables of the C library with which freed blocks of any size are kept, to avoid page faults.
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
           "MALLOC_TOP_PAD_": str(1 << 27)}


class Failed(Exception):
    pass


class Worker:
    """A process that replies to each line with a line of JSON."""

    def __init__(self, command, **environment):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True,
                                        env={**os.environ, **environment})
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.facts = self.answer(240)

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def answer(self, timeout):
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            raise Failed(f"no answer within {timeout} s") from None
        if line is None:
            self.process.wait()
            self.errors.seek(0)
            last = (self.errors.read().strip().splitlines() or [""])[-1]
            raise Failed(f"exit status {self.process.returncode}: {last}")
        reply = json.loads(line)
        if "error" in reply:
            self.stop()
            raise Failed(reply["error"].strip().splitlines()[0])
        return reply

    def ask(self, request, timeout=300):
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the reply contains the error
        return self.answer(timeout)

    def warning(self, text):
        """Returns the first line of the process's stderr that contains a text, or None."""
        size = os.fstat(self.errors.fileno()).st_size
        lines = os.pread(self.errors.fileno(), size, 0).decode(errors="replace").splitlines()
        return next((line for line in lines if text in line), None)

    def stop(self):
        try:
            self.process.stdin.write("quit\n")
            self.process.stdin.close()
            self.process.wait(timeout=10)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
