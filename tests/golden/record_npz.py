"""Writes npz/: files of numpy.savez and numpy.savez_compressed, for tests/data/files/npz_test.cpp.

    python record_npz.py

stored.npz and deflated.npz have the same arrays. others.npz has entries that are not supported
arrays, and repeated.npz two entries that numpy.load gives the same name.
"""

import pathlib
import zipfile

import numpy as np

OUT = pathlib.Path(__file__).with_name("npz")
OUT.mkdir(exist_ok=True)

ARRAYS = {
    "x": np.arange(-2, 4, dtype="f4").reshape(2, 3),
    "labels/train": np.arange(5),
    "mask": np.array([True, False, True]),
    "big_endian": np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
    "scalar": np.array(7.5),
    "empty": np.zeros((3, 0), "f4"),
    "zeros": np.zeros((40, 50), "u1"),
}
np.savez(OUT / "stored.npz", np.arange(3, dtype="u1"), **ARRAYS)
np.savez_compressed(OUT / "deflated.npz", np.arange(3, dtype="u1"), **ARRAYS)
np.savez_compressed(OUT / "others.npz", good=np.arange(3), objects=np.array([{}, None]),
                    text=np.array(["a", "bc"]))
np.savez(OUT / "none.npz")

with zipfile.ZipFile(OUT / "repeated.npz", "w") as file:
    for name in ("a", "a.npy"):
        with file.open(name, "w") as entry:
            np.lib.format.write_array(entry, np.arange(3))
with zipfile.ZipFile(OUT / "bzip2.npz", "w", zipfile.ZIP_BZIP2) as file:
    with file.open("a.npy", "w") as entry:
        np.lib.format.write_array(entry, np.arange(3))
