"""Writes webdataset/: tar archives and the samples that the webdataset package reads from them, for
tests/data/webdataset.

    python record_webdataset.py

samples.json has, for each archive, the key and the fields of each sample: a number or JSON value,
{"text": ...}, {"array": ...}, {"image": the file in pictures/} or {"bytes": ...}.
"""

import io
import json
import pathlib
import tarfile

import numpy as np
import webdataset

OUT = pathlib.Path(__file__).with_name("webdataset")
PICTURES = pathlib.Path(__file__).with_name("pictures")
OUT.mkdir(exist_ok=True)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def picture(name):
    return (PICTURES / name).read_bytes()


def write(name, files, form):
    """Writes an archive of (name, contents) pairs. None as contents is a directory."""
    with tarfile.open(OUT / name, "w", format=form) as archive:
        for file, contents in files:
            info = tarfile.TarInfo(file)
            if contents is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(contents)
                archive.addfile(info, io.BytesIO(contents))


MIXED = [
    ("train/", None),
    ("train/000.png", picture("color.png")),
    ("train/000.cls", b"7"),
    ("train/000.json", b'{"a": [1, 2.5, null], "b": "\xc3\xa9"}'),
    ("train/001.cls", b" -3\n"),
    ("train/001.JPG", picture("full.jpg")),
    ("train/001.seg.png", picture("gray.png")),
    ("train/001.txt", "Grüße\n".encode()),
    ("train/README", b"has no extension"),
    ("train/002.npy", npy(np.arange(6, dtype="i4").reshape(2, 3))),
    ("train/002.bin", bytes(range(0, 256, 15))),
    ("train/002.empty", b""),
    ("__meta__", b"metadata"),
    ("__meta__/x.cls", b"1"),
    ("v1.2/003.cls", b"4"),
]
LONG = "folder/" * 20 + "é" * 60
FILES = {
    "mixed.tar": (MIXED, tarfile.USTAR_FORMAT),
    "prefix.tar": ([("folder/" * 20 + "a.cls", b"1"), ("folder/" * 20 + "a.txt", b"x")],
                   tarfile.USTAR_FORMAT),
    "pax.tar": ([(LONG + ".cls", b"1"), (LONG + ".txt", b"x"), ("b.cls", b"2")], tarfile.PAX_FORMAT),
    "gnu.tar": ([(LONG + ".cls", b"1"), (LONG + ".txt", b"x"), ("b.cls", b"2")], tarfile.GNU_FORMAT),
    "empty.tar": ([], tarfile.USTAR_FORMAT),
}
for name, (files, form) in FILES.items():
    write(name, files, form)


def value(field, data):
    kind = field.split(".")[-1]
    if kind in ("jpg", "png"):
        names = [path.name for path in PICTURES.iterdir() if path.read_bytes() == data]
        return {"image": names[0]}
    decoded = webdataset.autodecode.decoders.get(kind, lambda x: x)(data)
    if kind == "txt":
        return {"text": decoded}
    if kind == "npy":
        return {"array": np.load(io.BytesIO(data)).tolist()}
    return {"bytes": list(decoded)} if isinstance(decoded, bytes) else decoded


def samples(name):
    dataset = webdataset.WebDataset(str(OUT / name), shardshuffle=False, empty_check=False)
    return [{"key": sample.pop("__key__"),
             "fields": {field: value(field, data) for field, data in sample.items()
                        if not field.startswith("__")}}
            for sample in dataset]


RESULT = {name: samples(name) for name in FILES}
(OUT / "samples.json").write_text("{\n" + ",\n".join(
    f"{json.dumps(name)}: {json.dumps(RESULT[name], ensure_ascii=False)}" for name in RESULT) + "\n}\n")
