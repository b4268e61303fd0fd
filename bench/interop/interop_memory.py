"""Pairs of bench/interop/check for tensors that are exchanged by DLPack within this process."""

import ctypes
import json
import sys

import numpy as np
import torch
from interop_pairs import DTYPES, NUMPY, TORCH, expect, pattern, torch_bytes, torch_pattern

# The names of a capsule before and after a program has taken its tensor, by version of DLPack.
VERSIONS = {
    1: (b"dltensor_versioned", b"used_dltensor_versioned"),
    0: (b"dltensor", b"used_dltensor"),
}


class Module:
    """The library of interop_dlpack.cpp, loaded into this process."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
        for name, result, arguments in [
            ("error", text, []), ("make", pointer, [number]), ("is_alive", number, []),
            ("free", None, [pointer]), ("export", pointer, [pointer, number]),
            ("import", pointer, [pointer, number]), ("address", pointer, [pointer]),
            ("describe", text, [pointer]),
        ]:
            function = getattr(library, f"interop_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, f"{name}_", function)
        python = ctypes.pythonapi
        self.new = python.PyCapsule_New
        self.new.restype, self.new.argtypes = ctypes.py_object, [pointer, text, pointer]
        self.pointer = python.PyCapsule_GetPointer
        self.pointer.restype, self.pointer.argtypes = pointer, [ctypes.py_object, text]
        self.rename = python.PyCapsule_SetName
        self.rename.restype, self.rename.argtypes = number, [ctypes.py_object, text]

    def checked(self, pointer):
        if not pointer:
            raise RuntimeError(self.error_().decode())
        return pointer

    def give(self, tensor, versioned):
        """Returns an object that every library's from_dlpack accepts."""
        def capsule(self_, **_):
            managed = self.checked(self.export_(tensor, versioned))
            return self.new(managed, VERSIONS[versioned][0], None)

        return type("Export", (), {"__dlpack__": capsule, "__dlpack_device__": lambda _: (1, 0)})()

    def take(self, capsule, versioned):
        name, used = VERSIONS[versioned]
        tensor = self.checked(self.import_(self.pointer(capsule, name), versioned))
        self.rename(capsule, used)
        return tensor

    def describe(self, tensor):
        return json.loads(self.checked(self.describe_(tensor)))


def dlpack(p, module):
    def out(dtype, from_dlpack, versioned, address, raw):
        """Checks a view of columns 1 and 2 of a known tensor [4, 3], transposed."""
        tensor = module.checked(module.make_(list(DTYPES).index(dtype)))
        expected, at = bytes.fromhex(module.describe(tensor)["bytes"]), module.address_(tensor)
        theirs = from_dlpack(module.give(tensor, versioned))
        module.free_(tensor)
        expect((str(theirs.dtype).removeprefix("torch."), tuple(theirs.shape)), (dtype, (2, 4)))
        expect(address(theirs), at, "memory at")
        expect(raw(theirs), expected)
        expect(module.is_alive_(), 1, "while it is held, memory is alive:")
        del theirs
        expect(module.is_alive_(), 0, "after its release, memory is alive:")

    def into(dtype, theirs, versioned, address, raw):
        """Imports transposed tensors and arrays [4, 3], which may be freed before Axle's tensor."""
        theirs = theirs.T[1:]
        arguments = {"max_version": (1, 1)} if versioned else {}
        expected, at = raw(theirs), address(theirs)
        tensor = module.take(theirs.__dlpack__(**arguments), versioned)
        del theirs
        found = module.describe(tensor)
        expect(found, {"dtype": dtype, "shape": [2, 4], "bytes": expected.hex()})
        expect(module.address_(tensor), at, "memory at")
        module.free_(tensor)

    def torch_reads(versioned):
        for d in DTYPES:
            out(d, torch.from_dlpack, versioned, torch.Tensor.data_ptr, torch_bytes)
        return f"same bits, no copy, {len(DTYPES)} dtypes"

    def torch_writes(versioned):
        for d in DTYPES:
            into(d, torch_pattern(d, (4, 3)), versioned, torch.Tensor.data_ptr, torch_bytes)
        return f"same bits, no copy, {len(DTYPES)} dtypes"

    known = [d for d in DTYPES if hasattr(np, d)]

    def address(array):
        return array.ctypes.data

    def numpy_reads():
        for d in known:
            out(d, np.from_dlpack, 1, address, np.ndarray.tobytes)
        return f"same bits, no copy, {len(known)} dtypes"

    def numpy_writes():
        for d in known:
            into(d, np.frombuffer(bytearray(pattern(d, (4, 3))), d).reshape(4, 3), 1, address,
                 np.ndarray.tobytes)
        return f"same bits, no copy, {len(known)} dtypes"

    def numpy_read_only():
        array = np.arange(6.0).reshape(2, 3)[:, ::-1]
        array.flags.writeable = False
        before = sys.getrefcount(array)
        tensor = module.take(array.__dlpack__(max_version=(1, 1)), 1)
        expect(module.describe(tensor)["bytes"], array.tobytes().hex())
        assert module.address_(tensor) != address(array), "the memory is shared"
        expect(sys.getrefcount(array), before, "references to the array")
        module.free_(tensor)
        return "same bits, copied"

    def refused():
        capsule = torch.zeros(2, 3, dtype=torch.complex128).__dlpack__(max_version=(1, 1))
        try:
            module.take(capsule, 1)
        except RuntimeError as error:
            return f"refused: {error}"
        raise AssertionError("a complex128 tensor was accepted")

    for versioned, name in ((1, "DLPack 1.x"), (0, "DLPack before 1.0")):
        p.pair(p.ours, TORCH, name, lambda: torch_reads(versioned))
        p.pair(TORCH, p.ours, name, lambda: torch_writes(versioned))
    p.pair(TORCH, p.ours, "DLPack, complex128", refused)
    p.pair(p.ours, NUMPY, "DLPack 1.x", numpy_reads)
    p.pair(NUMPY, p.ours, "DLPack 1.x", numpy_writes)
    p.pair(NUMPY, p.ours, "DLPack 1.x, read-only", numpy_read_only)
