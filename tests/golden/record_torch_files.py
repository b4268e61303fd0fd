"""Writes files with PyTorch and Accelerate: python record_torch_files.py

tests/fuzz/corpus/torch_file/ gets valid and invalid files of torch.save, which are also inputs of a
fuzzer. torch_files/ gets a model written by Accelerate's save_model, as one file and in shards, in
both formats. llama_tied/ gets its weights as pytorch_model.bin. Floating elements are 0, 1/8, 2/8,
... in the order of a file.
"""

import collections
import pathlib
import shutil
import zipfile

import safetensors.torch
import torch
from accelerate import Accelerator

HERE = pathlib.Path(__file__).with_name("torch_files")
CORPUS = pathlib.Path(__file__).parents[1] / "fuzz/corpus/torch_file"
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
          "bool", "complex64", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]


class ModelForTest(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = torch.nn.Linear(3, 4)
        self.batchnorm = torch.nn.BatchNorm1d(4)
        self.linear2 = torch.nn.Linear(4, 5)
        first = 0
        for tensor in self.state_dict().values():
            if not tensor.is_floating_point():
                tensor.fill_(7)
                continue
            values = torch.arange(first, first + tensor.numel()) / 8
            tensor.copy_(values.view(tensor.shape))
            first += tensor.numel()


class Refused:
    def __reduce__(self):
        return print, ("a file was executed",)


def of_dtype(name):
    dtype = getattr(torch, name)
    size = torch.empty((), dtype=dtype).element_size()
    data = [1, 0, 1, 1] if name == "bool" else [i % 64 for i in range(4 * size)]
    return torch.tensor(data, dtype=torch.uint8).view(dtype)


def optimizer_state(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer.state_dict()


def damaged(path, old, new):
    data = path.read_bytes()
    assert data.count(old) == 1, f"{data.count(old)} times {old}"
    return data.replace(old, new)


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    CORPUS.mkdir(exist_ok=True)
    model = ModelForTest()
    x = torch.arange(12.0) / 8
    tied = torch.arange(6.0).view(2, 3) / 8
    saved = {
        "state": model.state_dict(),
        "dtypes": {name: of_dtype(name) for name in DTYPES},
        "views": {
            "transposed": x.view(3, 4).t(), "middle": x[4:8], "columns": x.view(3, 4)[:, 1:3],
            "scalar": x[11], "empty": x[:0].view(0, 5), "tied": tied, "tie": tied,
            "parameter": torch.nn.Parameter(tied),
        },
        "plain": {
            "none": None, "flags": [True, False], "integers": [0, 255, 65535, -1, 2**40, -2**40],
            "number": -0.125, "text": "é", "tuple": (1, (2, "three")), "dtype": torch.bfloat16,
            "size": torch.Size([2, 3]), "of integers": {0: "zero", -1: "minus one"},
            "ordered": collections.OrderedDict(b=1, a=2), "nothing": [{}, [], ()],
        },
        "optimizer": optimizer_state(ModelForTest()),
        "counter": {"counter": collections.Counter("aab")},
        "call": {"a": 1, "b": Refused()},
        "repeated": torch.zeros(1).expand(1000),
        "deep": [],
        "key": {(1, 2): 3},
        "big_integer": 2**64,
        "bytes": b"abc",
    }
    for _ in range(100):
        saved["deep"] = [saved["deep"]]
    for name, value in saved.items():
        torch.save(value, CORPUS / name)
    for protocol in (3, 4, 5):
        torch.save(saved["plain"] | {"weight": tied}, CORPUS / f"protocol{protocol}",
                   pickle_protocol=protocol)
    torch.save(saved["state"], CORPUS / "legacy", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(CORPUS / "state") as source, \
            zipfile.ZipFile(CORPUS / "compressed", "w", zipfile.ZIP_DEFLATED) as packed:
        for entry in source.namelist():
            packed.writestr(entry.replace("state/", "compressed/"), source.read(entry))
    with zipfile.ZipFile(CORPUS / "zip", "w") as other:
        other.writestr("folder/readme", "no checkpoint")
    flags = CORPUS / "flags"
    torch.save(torch.tensor([True] * 5), flags)
    flags.write_bytes(damaged(flags, b"\x01" * 5, b"\x01\x01\x02\x01\x01"))

    accelerator = Accelerator(cpu=True)
    for kind, safe in (("safetensors", True), ("bin", False)):
        for size, limit in (("whole", "1GB"), ("shards", 100)):
            accelerator.save_model(model, HERE / f"{kind}_{size}", limit, safe_serialization=safe)
    shutil.copytree(HERE.with_name("llama_tied"), HERE / "llama_tied")
    weights = HERE / "llama_tied/model.safetensors"
    torch.save(safetensors.torch.load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()


if __name__ == "__main__":
    main()
