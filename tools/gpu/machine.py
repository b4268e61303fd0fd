"""Information about the machine and the checkout, for tools/gpu_gate."""

import ctypes
import hashlib
import re
import subprocess


class Broken(Exception):
    """Raised with the reason if a part, or the whole gate, cannot run."""


def the_gpu():
    """Returns name, bytes of memory and driver of the first GPU. Raises Broken without a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Broken(f"no GPU: no NVIDIA driver ({error})") from None
    status, count, device = driver.cuInit(0), ctypes.c_int(), ctypes.c_int()
    if status == 0:
        status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        raise Broken(f"no GPU: the driver reports error {status} and {count.value} devices")
    name, memory, version = ctypes.create_string_buffer(256), ctypes.c_size_t(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDeviceGetName(name, 256, device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    driver.cuDriverGetVersion(ctypes.byref(version))
    return {"gpu": name.value.decode(), "memory": memory.value, "driver": version.value}


def chip_of(name):
    """Returns a short name: h100 for NVIDIA H100 80GB HBM3, rtx-4090 for NVIDIA GeForce RTX 4090."""
    words = re.sub(r"NVIDIA|Tesla|GeForce|Quadro", " ", name).lower().split()
    return "-".join(words[:2] if words[0].isalpha() else words[:1])


def text_of(*command):
    """Returns the output of a command, or "" if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


SOURCES = ("CMakeLists.txt", "accel", "bench", "cmake", "core", "data", "dist", "kernels", "nn",
           "optim", "tests", "tools")


def digest_of_sources(root):
    """Returns a hash of all files that determine the tested programs and how they are tested."""
    digest = hashlib.sha256()
    for name in SOURCES:
        top = root / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "results" not in path.parts and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


# Prints the folders of NVIDIA's wheels of the running Python, one per line.
FOLDERS = """
import glob, site, sys, sysconfig
roots = [*sys.path, *site.getsitepackages(), site.getusersitepackages(),
         sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
for root in dict.fromkeys(r for r in roots if r):
    for folder in sorted(glob.glob(glob.escape(root) + "/nvidia/*/lib")):
        print(folder)
"""


def library_folders(python):
    """Returns the folders nvidia/*/lib in the site-packages of a Python interpreter."""
    return list(dict.fromkeys(text_of(python, "-c", FOLDERS).splitlines()))


def library_environment(python, environment):
    """Returns the variables with which Axle's programs also find NVIDIA's wheels."""
    given = environment.get("AXLE_LIBRARY_PATH", "")
    folders = [f for f in given.split(":") if f] + library_folders(python)
    return {"AXLE_LIBRARY_PATH": ":".join(dict.fromkeys(folders))} if folders else {}
