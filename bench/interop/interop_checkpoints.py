"""Pairs of bench/interop/check for checkpoints: files of torch.save and folders of Accelerate."""

import sys

import accelerate
import huggingface_hub
import safetensors.torch
import torch
import transformers
from interop_pairs import (DTYPES, ROOT, TORCH, TRANSFORMERS, described, expect, torch_bytes,
                           torch_pattern)

ACCELERATE = f"accelerate {accelerate.__version__}"
SIZES = {"whole": "1GB", "sharded": "300"}  # shard sizes in bytes; the model has 608 bytes


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(5, 7)
        self.norm = torch.nn.BatchNorm1d(7)
        self.last = torch.nn.Linear(7, 10)


def seen(tensor):
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "bytes": torch_bytes(tensor).hex()}


def torch_files(p):
    path = p.scratch / "theirs.pt"

    def ours_reads():
        tensors = {}
        for dtype in DTYPES:
            for suffix, shape in {"": (2, 3), "/scalar": (), "/empty": (3, 0)}.items():
                tensors[dtype + suffix] = (dtype, shape)
        saved = {name: torch_pattern(*t) for name, t in tensors.items()}
        torch.save(saved, path)
        expect(p.ask("torch-read", path), {name: described(*t) for name, t in tensors.items()})
        return f"same bits, {len(saved)} tensors of {len(DTYPES)} dtypes"

    p.pair(TORCH, p.ours, "torch.save's file", ours_reads)


def accelerate_folders(p):
    torch.manual_seed(3)
    model = Model()
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.normal_()
    state = {name: seen(tensor) for name, tensor in model.state_dict().items()}
    accelerator = accelerate.Accelerator(cpu=True)

    def files(folder):
        return sorted(path.name for path in folder.iterdir())

    def counted(folder):
        number = len(files(folder))
        return f"{number} file" + "s" * (number > 1)

    def ours_reads(kind, size):
        folder = p.folder(f"accelerate-{kind}-{size}")
        limit = int(SIZES[size]) if SIZES[size].isdigit() else SIZES[size]
        accelerator.save_model(model, folder, limit, safe_serialization=kind == "safetensors")
        expect(len(files(folder)) > 1, size == "sharded", "several files")
        expect(p.ask("weights-read", folder), state)
        return f"same bits, {len(state)} weights in {counted(folder)}"

    def theirs_reads(size):
        theirs, ours = p.folder(f"accelerate-safetensors-{size}"), p.folder(f"ours-{size}")
        p.call("weights-write", ours, SIZES[size], theirs)
        expect(files(ours), files(theirs), "files")
        loaded = Model()
        accelerate.load_checkpoint_in_model(loaded, ours, strict=size == "whole")
        expect({name: seen(tensor) for name, tensor in loaded.state_dict().items()}, state)
        same = all((ours / name).read_bytes() == (theirs / name).read_bytes()
                   for name in files(ours))
        return f"same bits, {counted(ours)}" + (", byte for byte theirs" if same else "")

    def torch_reads(size):
        found = {}
        for path in p.folder(f"ours-{size}").glob("*.safetensors"):
            found |= safetensors.torch.load_file(path)
        expect({name: seen(tensor) for name, tensor in found.items()}, state)
        Model().load_state_dict(found)
        return f"same bits, {len(found)} weights"

    for size in SIZES:
        for kind in ("safetensors", "bin"):
            p.pair(ACCELERATE, p.ours, f"save_model's {kind}, {size}",
                   lambda: ours_reads(kind, size))
        p.pair(p.ours, ACCELERATE, f"save_model's safetensors, {size}", lambda: theirs_reads(size))
        p.pair(p.ours, TORCH, f"save_model's safetensors, {size}", lambda: torch_reads(size))


def accelerate_states(p):
    sys.path.append(str(ROOT / "tests/golden"))
    import record_accelerate_state as recorded

    def ours_reads(safe):
        folder = p.scratch / ("state" if safe else "state-pickled")
        theirs = recorded.record(folder, both=False, safe=safe)
        ours = p.ask("resume", folder, len(theirs))
        worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        assert worst <= 1e-12, f"losses differ by {worst}"
        return f"same next {len(ours)} losses, max abs difference {worst:.1e}, float64"

    for safe in (True, False):
        what = "save_state's folder" + ("" if safe else ", safe_serialization=False")
        p.pair(ACCELERATE, p.ours, what, lambda: ours_reads(safe))


def pretrained_folders(p):
    """Loads with AutoModel what Axle's save_pretrained has written, in one file and in shards."""

    def theirs_reads(kind, name, *size):
        folder = p.folder(f"auto-{kind}{len(size)}")
        p.call("model-write", kind, folder, *size)
        model, report = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
        expect(type(model).__name__, name, "class")
        expect(list(report["missing_keys"]), [], "missing keys")
        tensors = {}
        for path in folder.glob("*.safetensors"):
            tensors |= safetensors.torch.load_file(path)
        prefix = model.base_model_prefix + "."
        found = {n: seen(t) for n, t in model.state_dict().items()}
        expected = {n: seen(tensors[prefix + n if prefix + n in tensors else n]) for n in found}
        expect(found, expected)
        card = huggingface_hub.ModelCard.load(folder / "README.md")
        expect(card.data.library_name, "transformers", "library_name")
        shards = len(list(folder.glob("*.safetensors")))
        expect(shards > 1, bool(size), "several shards")
        return f"same bits, {len(found)} weights in {shards} file" + "s" * (shards > 1)

    for kind, name in {"gpt2": "GPT2Model", "llama": "LlamaModel", "bert": "BertModel"}.items():
        p.pair(p.ours, TRANSFORMERS, f"save_pretrained's {kind}, AutoModel",
               lambda: theirs_reads(kind, name))
        p.pair(p.ours, TRANSFORMERS, f"save_pretrained's {kind} in shards, AutoModel",
               lambda: theirs_reads(kind, name, "20KB"))
