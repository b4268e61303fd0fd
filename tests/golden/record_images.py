"""Writes images/: python record_images.py FOLDER_WITH_MNIST

The folder gets the first 40 training digits and 10 test digits of MNIST, files in CIFAR's binary
format, arrays saved by NumPy, and the results of torchvision's transforms for two images.
"""

import gzip
import pathlib
import sys

import numpy as np
import torch
from torchvision import transforms

OUT = pathlib.Path(__file__).with_name("images")
CROPS = [(3, 3), (4, 5), (2, 3), (5, 6), (7, 9), (8, 3), (1, 8)]


def pack(data):
    return gzip.compress(data, compresslevel=9, mtime=0)


def record_mnist(folder):
    for part, count in (("train", 40), ("t10k", 10)):
        for kind, item in (("images-idx3-ubyte", 28 * 28), ("labels-idx1-ubyte", 1)):
            data = gzip.decompress((folder / f"{part}-{kind}.gz").read_bytes())
            header = 16 if item > 1 else 8
            cut = data[:4] + count.to_bytes(4, "big") + data[8 : header + count * item]
            name = OUT / f"{part}-{kind}"
            if part == "train":
                name.with_name(name.name + ".gz").write_bytes(pack(cut))
            else:
                name.write_bytes(cut)


def record_cifar():
    """Writes records. Pixel p of record r is (p * 7 + r) % 251.

    The label is r + 3, and the coarse label r + 1.
    """
    for name, labels in (("test_batch.bin", [3]), ("test.bin", [1, 3])):
        records = b""
        for r in range(2):
            pixels = bytes((p * 7 + r) % 251 for p in range(3072))
            records += bytes(label + r for label in labels) + pixels
        (OUT / name).write_bytes(records)


def record_npy():
    """Writes arrays of counted elements.

    Element i, in C order, is i - 2 (unsigned: i; bool: i odd; complex: (i - 2) + i j).
    """
    codes = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8"]

    def values(code, shape):
        n = np.arange(int(np.prod(shape)))
        kind = code.strip(">")[0]
        made = n % 2 == 1 if kind == "b" else n if kind == "u" else n - 2
        made = made + n * 1j if kind == "c" else made
        return made.reshape(shape).astype(code)

    for code in codes:
        np.save(OUT / f"{code}.npy", values(code, (2, 3)))
        np.save(OUT / f"{code}_big_fortran.npy", np.asfortranarray(values(">" + code, (2, 3))))
    np.save(OUT / "scalar.npy", values("f4", ()))
    np.save(OUT / "empty.npy", values("f4", (3, 0)))
    np.save(OUT / "list.npy", values("i8", (5,)))
    np.save(OUT / "fortran3.npy", np.asfortranarray(values("f4", (2, 3, 4))))
    for version in (2, 3):
        with open(OUT / f"version{version}.npy", "wb") as file:
            np.lib.format.write_array(file, values("f4", (2, 3)), version=(version, 0))
    np.save(OUT / "text.npy", np.array(["a", "bc"]))
    np.save(OUT / "objects.npy", np.array([{}, None]), allow_pickle=True)
    np.save(OUT / "fields.npy", np.zeros(2, [("x", "f4"), ("y", "i4")]))
    np.save(OUT / "c16.npy", values("c16", (2,)))


def record_transforms():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (2, 3, 5, 6), dtype=torch.uint8)
    np.save(OUT / "images.npy", images.numpy())
    floats = torch.stack([transforms.ToTensor()(i.permute(1, 2, 0).numpy()) for i in images])
    np.save(OUT / "to_float.npy", floats.numpy())
    normalize = transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    np.save(OUT / "normalize.npy", normalize(floats).numpy())
    for h, w in CROPS:
        np.save(OUT / f"center_crop_{h}_{w}.npy", transforms.CenterCrop((h, w))(images).numpy())
    np.save(OUT / "flip.npy", transforms.RandomHorizontalFlip(1.0)(images).numpy())


OUT.mkdir(exist_ok=True)
record_mnist(pathlib.Path(sys.argv[1]))
record_cifar()
record_npy()
record_transforms()
