"""Packs the programs of the gate, to run them on another machine, and checks such a pack.

A pack is a folder:

    bin/            test_cuda, bench_gpu_kernels and bench_train_step, stripped
    lib/            libaxle.so, and the shared libraries that are not part of glibc or the driver
    tools/          gpu_gate and tools/gpu/
    bench/peers/    the comparison with PyTorch
    manifest.json   commit, hash of the sources, compute capabilities, hash of each file

FOLDER.tar.xz is the compressed pack. The other machine needs CUDA 13, a Python with PyTorch, and at
least the glibc of the machine that made the pack.
"""

import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile

from gpu.machine import Broken, digest_of_sources, text_of

PROGRAMS = ("test_cuda", "bench_gpu_kernels", "bench_train_step")
PEERS = ("compare_gpu", "serve.py", "train_step.py", "worker.py")
MOST_BYTES = 20 << 20  # the largest size of the compressed pack
# The libraries of glibc and of the driver come from the machine that runs the pack.
OF_THE_SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|cuda))\.so(\..*)?$")
# RPATH instead of RUNPATH, so that libraries in lib/ also find each other there.
OLD_TAGS = "-Wl,--disable-new-dtags"


def run(command, what):
    """Runs a command. Raises Broken with the last lines of its output if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace")
    if done.returncode != 0:
        last = [line for line in done.stdout.strip().splitlines() if line.strip()][-3:]
        raise Broken(f"{what}: {command[0]} failed: {' | '.join(last)}")
    return done.stdout


BUILD_TOOLS = ("cmake", "ninja", "nvcc")


def build(root, folder, archs):
    for tool in BUILD_TOOLS:
        if not (shutil.which(tool) or os.access(f"/usr/local/cuda/bin/{tool}", os.X_OK)):
            raise Broken(f"the pack cannot be built: {tool} was not found")
    options = {"CMAKE_BUILD_TYPE": "Release", "AXLE_GATE_PACK": "ON", "AXLE_CUDA": "ON",
               "AXLE_CUDA_ARCHS": archs, "AXLE_SIMULATED_TESTS": "OFF", "AXLE_INSTALL": "OFF",
               "AXLE_BUILD_TOOLS": "OFF",
               "CMAKE_BUILD_RPATH": "$ORIGIN/../lib", "CMAKE_EXE_LINKER_FLAGS": OLD_TAGS,
               "CMAKE_SHARED_LINKER_FLAGS": OLD_TAGS}
    run(["cmake", "-S", str(root), "-B", str(folder), "-G", "Ninja",
         *(f"-D{key}={value}" for key, value in options.items())], "the pack cannot be configured")
    run(["cmake", "--build", str(folder), "--parallel", str(os.cpu_count()), "--target", *PROGRAMS],
        "the pack cannot be built")


def shared_libraries(ldd):
    """Returns {name: path} of the libraries to copy. Raises Broken if ldd did not find one."""
    found = {}
    for line in ldd.splitlines():
        match = re.match(r"\s*(\S+) => (not found|\S+)", line)
        if not match or OF_THE_SYSTEM.match(match.group(1)):
            continue
        name, path = match.groups()
        if path == "not found":
            raise Broken(f"the pack lacks a library: {name} was not found")
        found[name] = path
    return found


def copy_stripped(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    run(["strip", "--strip-unneeded", "-o", str(target), str(source)], f"{source} is not stripped")
    target.chmod(0o755)


def digest_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copy_files(root, built, folder):
    """Fills the folder from a build. Raises Broken if a program is missing."""
    libraries = {}
    for name in PROGRAMS:
        program = built / "bin" / name
        if not program.is_file():
            raise Broken(f"the pack lacks a program: {program} is not built")
        libraries.update(shared_libraries(run(["ldd", str(program)], f"{name} cannot be packed")))
        copy_stripped(program, folder / "bin" / name)
    for name, path in libraries.items():
        copy_stripped(pathlib.Path(path).resolve(), folder / "lib" / name)
    for name in PEERS:
        copy_text(root / "bench/peers" / name, folder / "bench/peers" / name)
    copy_text(root / "tools/gpu_gate", folder / "tools/gpu_gate")
    for source in sorted((root / "tools/gpu").glob("*.py")):
        copy_text(source, folder / "tools/gpu" / source.name)


def copy_text(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def write_manifest(root, folder, archs):
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json")
    manifest = {
        "commit": text_of("git", "-C", str(root), "describe", "--always", "--dirty") or "unknown",
        "sources": digest_of_sources(root), "archs": archs, "glibc": platform.libc_ver()[1],
        "files": {str(p.relative_to(folder)): digest_of(p) for p in files}}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def compress(folder):
    """Writes FOLDER.tar.xz, and returns its path and size. Raises Broken above MOST_BYTES."""
    archive = folder.with_name(folder.name + ".tar.xz")
    with tarfile.open(archive, "w:xz", preset=6) as tar:
        tar.add(folder, arcname=folder.name,
                filter=lambda f: None if "__pycache__" in f.name else f)
    size = archive.stat().st_size
    if size > MOST_BYTES:
        raise Broken(f"the pack is too large: {archive} has {size / 2**20:.1f} MiB, at most "
                     f"{MOST_BYTES >> 20} are allowed; build it for one compute capability")
    return archive, size


def make(root, folder, built, archs):
    """Builds and writes a pack. Returns its archive and the size of the archive."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "manifest.json").exists():
        raise Broken(f"{folder} is not empty and not a pack; name another folder")
    build(root, built, archs)
    shutil.rmtree(folder, ignore_errors=True)
    copy_files(root, built, folder)
    write_manifest(root, folder, archs)
    return compress(folder)


def version(text):
    return tuple(int(n) for n in re.findall(r"\d+", text)[:2])


def check(folder):
    """Returns the manifest of a pack. Raises Broken if it cannot run on this machine."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise Broken(f"{folder} is not a pack: {error}") from None
    for name, digest in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            kind = {"bin": "program", "lib": "library"}.get(name.split("/")[0], "file")
            raise Broken(f"a {kind} is missing: {path}; pack again")
        if digest_of(path) != digest:
            raise Broken(f"{path} has changed since it was packed; pack again")
    here = platform.libc_ver()[1]
    if here and manifest["glibc"] and version(here) < version(manifest["glibc"]):
        raise Broken(f"the pack needs glibc {manifest['glibc']}, this machine has {here}")
    for name in PROGRAMS:
        if f"bin/{name}" not in manifest["files"]:
            raise Broken(f"a program is missing: the pack was made without {name}; pack again")
    starts(folder / "bin/test_cuda")
    return manifest


def starts(program):
    """Raises Broken if the program does not start, for example because a library is missing."""
    # The loader finds lib/ relative to the program with the help of /proc, which a chroot can lack.
    folders = [str(program.parent.parent / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    try:
        done = subprocess.run(
            [str(program), "--gtest_list_tests"], capture_output=True, text=True,
            errors="replace", timeout=120,
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, folders))})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Broken(f"{program.name} does not start: {error}") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Broken(f"{program.name} does not start: exit status {done.returncode}: {last}")
