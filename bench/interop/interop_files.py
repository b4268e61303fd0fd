"""Pairs of bench/interop/check for safetensors files, .npy files and TensorBoard's event files."""

import ctypes
import io
import math

import numpy as np
import PIL.Image
import safetensors
import safetensors.torch
import torch
from interop_pairs import (DTYPES, NUMPY, SAFETENSORS, TENSORBOARD, TORCH, described, expect,
                           pattern, torch_bytes, torch_pattern)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter

SHAPES = {"": (2, 3), "/scalar": (), "/empty": (3, 0)}
PATTERNS = {d + suffix: (d, shape) for d in DTYPES for suffix, shape in SHAPES.items()}
NOTE = {"format": "pt", "note": '"é"\n'}


def safetensors_files(p):
    ours = p.scratch / "ours.safetensors"
    p.call("safetensors-write", ours)

    def package_reads():
        found = dict(safetensors.deserialize(ours.read_bytes()))
        expect({n: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for n, t in found.items()},
               {n: (DTYPES[d][0], s, pattern(d, s)) for n, (d, s) in PATTERNS.items()})
        with safetensors.safe_open(ours, framework="pt") as file:
            expect(file.metadata(), NOTE)
        return f"same bits, {len(found)} tensors of {len(DTYPES)} dtypes"

    def torch_reads():
        found = safetensors.torch.load_file(ours)
        expect({n: (str(t.dtype), tuple(t.shape), torch_bytes(t)) for n, t in found.items()},
               {n: (f"torch.{d}", s, pattern(d, s)) for n, (d, s) in PATTERNS.items()})
        return f"same bits, {len(found)} tensors of {len(DTYPES)} dtypes"

    def package_writes():
        keep = {n: ctypes.create_string_buffer(pattern(d, s), len(pattern(d, s)))
                for n, (d, s) in PATTERNS.items()}
        specs = {n: safetensors.TensorSpec(dtype=d, shape=s, data_ptr=ctypes.addressof(keep[n]),
                                           data_len=len(pattern(d, s)))
                 for n, (d, s) in PATTERNS.items()}
        return reads(bytes(safetensors.serialize(specs, NOTE)))

    def torch_writes():
        tensors = {n: torch_pattern(*t) for n, t in PATTERNS.items()}
        return reads(safetensors.torch.save(tensors, NOTE))

    def reads(data):
        path = p.scratch / "theirs.safetensors"
        path.write_bytes(data)
        expected = {n: described(*t) for n, t in PATTERNS.items()}
        expect(p.ask("safetensors-read", path), {"tensors": expected, "metadata": NOTE})
        same = ", and its file is ours byte for byte" if data == ours.read_bytes() else ""
        return f"same bits, {len(PATTERNS)} tensors of {len(DTYPES)} dtypes{same}"

    p.pair(p.ours, SAFETENSORS, "safetensors file", package_reads)
    p.pair(SAFETENSORS, p.ours, "safetensors file", package_writes)
    p.pair(p.ours, TORCH, "safetensors file", torch_reads)
    p.pair(TORCH, p.ours, "safetensors file", torch_writes)


def npy_files(p):
    known = {n: t for n, t in PATTERNS.items() if hasattr(np, t[0])}

    def numpy_reads():
        folder = p.folder("npy")
        p.call("npy-write", folder)
        for name, (dtype, shape) in known.items():
            path = folder / f"{name.replace('/', '.')}.npy"
            array = np.load(path)
            expect((array.dtype, array.shape, array.tobytes()),
                   (np.dtype(dtype), shape, pattern(dtype, shape)), name)
            again = io.BytesIO()
            np.save(again, array)
            expect(path.read_bytes(), again.getvalue(), "bytes of the file")
        expect(len(list(folder.iterdir())), len(known), "files")
        return f"same bits, {len(known)} arrays, files byte for byte numpy's"

    def numpy_writes():
        arrays = [(np.frombuffer(pattern(d, s), d).reshape(s), described(d, s))
                  for d, s in known.values()]
        arrays += [(np.asfortranarray(a), e) for a, e in arrays if a.ndim > 0]
        arrays += [(a.astype(a.dtype.newbyteorder(">")), e) for a, e in arrays]
        paths = [p.scratch / f"{i}.npy" for i in range(len(arrays))]
        for path, (array, _) in zip(paths, arrays):
            np.save(path, array)
        expect(p.ask("npy-read", *paths), [e for _, e in arrays])
        return f"same bits, {len(arrays)} arrays, both orders, both byte orders"

    p.pair(p.ours, NUMPY, ".npy", numpy_reads)
    p.pair(NUMPY, p.ours, ".npy", numpy_writes)


def event_files(p):
    def events(folder):
        kinds = ("scalars", "histograms", "images", "tensors")
        return EventAccumulator(str(folder), size_guidance={k: 0 for k in kinds}).Reload()

    folder = p.folder("tensorboard")
    p.call("tensorboard-write", folder)
    ours = events(folder)

    def scalars():
        expect(set(ours.Tags()["scalars"]), {"train/loss", "huge", "nan"}, "scalars")
        found = [(e.step, e.value) for e in ours.Scalars("train/loss")]
        expect(found, [(10 * i, float(np.float32(math.sin(0.1 * i)))) for i in range(100)])
        (huge,), (nan,) = ours.Scalars("huge"), ours.Scalars("nan")
        assert math.isinf(huge.value) and math.isnan(nan.value) and nan.step == 3
        return "same values, as f32, 3 series"

    def text():
        expect(set(ours.PluginTagToContent("text")), {"note/text_summary"}, "texts")
        (event,) = ours.Tensors("note/text_summary")
        found = tensor_util.make_ndarray(event.tensor_proto).tolist()
        expect((event.step, found), (5, ['# A *text*\nwith é and "quotes"'.encode()]))
        return "same text"

    def histograms():
        theirs = SummaryWriter(p.folder("tensorboard-torch"))
        values = torch.arange(1000).double() * 0.01 - 4
        theirs.add_histogram("weights", values, 6, bins="tensorflow")
        theirs.close()
        (expected,) = events(p.scratch / "tensorboard-torch").Histograms("weights")
        (found,) = ours.Histograms("weights")
        expect(found.step, 6, "step")
        a, b = found.histogram_value, expected.histogram_value
        expect((a.min, a.max, a.num, a.bucket), (b.min, b.max, b.num, b.bucket))
        for mine, other in zip([a.sum, a.sum_squares, *a.bucket_limit],
                               [b.sum, b.sum_squares, *b.bucket_limit], strict=True):
            assert math.isclose(mine, other, rel_tol=1e-12), f"{mine}, not {other}"
        return f"same buckets as {TORCH} writes, {len(a.bucket)}"

    def images():
        (event,) = ours.Images("picture")
        pixels = np.asarray(PIL.Image.open(io.BytesIO(event.encoded_image_string)))
        expected = np.frombuffer(pattern("uint8", (3, 5, 4)), np.uint8).reshape(3, 5, 4)
        expect((event.step, event.width, event.height), (7, 4, 5))
        expect(pixels.tolist(), expected.transpose(1, 2, 0).tolist(), "pixels")
        return "same pixels"

    def hparams():
        content = ours.PluginTagToContent(hparams_metadata.PLUGIN_NAME)
        start = hparams_metadata.parse_session_start_info_plugin_data(
            content[hparams_metadata.SESSION_START_INFO_TAG])
        found = {k: getattr(v, v.WhichOneof("kind")) for k, v in start.hparams.items()}
        expect(found, {"lr": 0.25, "model": "gpt", "data/shuffled": True})
        end = hparams_metadata.parse_session_end_info_plugin_data(
            content[hparams_metadata.SESSION_END_INFO_TAG])
        expect(end.status, 1, "status")
        return "same hyperparameters, and the run's success"

    for what in (scalars, text, histograms, images, hparams):
        p.pair(p.ours, TENSORBOARD, what.__name__, what)
