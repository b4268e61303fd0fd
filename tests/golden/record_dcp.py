"""Writes distributed checkpoints with PyTorch: python record_dcp.py

Two processes write dcp/model and dcp/optimizer, and one process writes dcp/plain and dcp/old.
dcp/old has the names of classes before PyTorch 2.3, and an older protocol of pickles. The tensors are
also in dcp/<name>.safetensors.

dcp/state is a folder as Accelerate's save_state writes it for SHARDED_STATE_DICT of FSDP 2: two
processes have trained a model for three steps. dcp/losses.json has the losses of the next steps, in
float64.

tests/fuzz/corpus/distributed_checkpoint/ gets inputs of the fuzzer: the length of .metadata in four
bytes, .metadata, and the first file of chunks. PyTorch runs on the CPU.
"""

import json
import os
import pathlib
import pickle
import shutil
import struct

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

HERE = pathlib.Path(__file__).with_name("dcp")
CORPUS = pathlib.Path(__file__).parents[1] / "fuzz/corpus/distributed_checkpoint"
STEPS, GO_ON = 3, 3


def counted(*shape, dtype=torch.float32, first=0):
    count = torch.Size(shape).numel()
    return (torch.arange(first, first + count, dtype=torch.float64) / 8).to(dtype).view(shape)


def save(state, name):
    """Saves with a relative path, because .metadata contains it."""
    dcp.save(state, checkpoint_id=name)


def flattened(state, prefix=""):
    tensors = {}
    for key, value in state.items():
        if isinstance(value, dict):
            tensors |= flattened(value, f"{prefix}{key}.")
        elif isinstance(value, DTensor):
            tensors[prefix + key] = value.full_tensor().contiguous()
        elif isinstance(value, torch.Tensor):
            tensors[prefix + key] = value.contiguous()
    return tensors


def two_process_states(mesh):
    def sharded(tensor, dimension):
        return distribute_tensor(tensor, mesh, [Shard(dimension)])

    model = {
        "linear.weight": sharded(counted(5, 3), 0),  # the processes have 3 and 2 rows
        "linear.bias": sharded(counted(1, first=100), 0),  # the second process has no element
        "columns": sharded(counted(3, 4, dtype=torch.bfloat16), 1),
        "whole": distribute_tensor(counted(2, 2, dtype=torch.float16), mesh, [Replicate()]),
        "embedding": sharded(counted(2, 3, 2), 0),
        "steps": torch.tensor(7),
        "scale": torch.tensor(0.125),
        "empty": torch.empty(0, 5),
        "flags": torch.tensor([True, False, True]),
    }
    optimizer = {
        "state": {
            "linear.weight": {
                "step": torch.tensor(3.0),
                "exp_avg": sharded(counted(5, 3, first=1), 0),
                "exp_avg_sq": sharded(counted(5, 3, first=2), 0),
            }
        },
        "param_groups": [
            {"lr": 0.25, "betas": (0.5, 0.75), "amsgrad": False, "params": ["linear.weight"]}
        ],
    }
    return {"model": model}, {"optimizer": optimizer}


def batch(i):
    x = torch.cos(torch.arange(6, dtype=torch.float64) + i).view(2, 3)
    return x, x.sum(1, keepdim=True) / 2


def filled(model):
    first = 0
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.arange(first, first + parameter.numel(), dtype=torch.float64)
            parameter.copy_(torch.sin(values).view(parameter.shape))
            first += parameter.numel()
    return model


def train_and_save(mesh):
    layers = [torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)]
    net = filled(torch.nn.Sequential(*layers).double())
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.1)
    losses = []
    for i in range(STEPS + GO_ON):
        if i == STEPS:
            save({"model": get_model_state_dict(net)}, "state/pytorch_model_fsdp_0")
            save({"optimizer": get_optimizer_state_dict(net, optimizer)}, "state/optimizer_0")
        x, y = batch(i)  # the same on both processes
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if dist.get_rank() == 0:
        torch.save({"step": STEPS}, "state/random_states_0.pkl")
        pathlib.Path("losses.json").write_text(json.dumps(losses[STEPS:], indent=1) + "\n")


def run(rank, file):
    os.chdir(HERE)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for name, state in zip(("model", "optimizer"), two_process_states(mesh), strict=True):
        save(state, name)
        tensors = flattened(state)
        if rank == 0:
            safetensors.torch.save_file(tensors, f"{name}.safetensors")
    train_and_save(mesh)
    dist.barrier()
    dist.destroy_process_group()


def make_old(folder):
    """Gives a checkpoint the names and the protocol of PyTorch 2.2."""
    path = folder / ".metadata"
    data = pickle.dumps(pickle.loads(path.read_bytes()), protocol=2)
    old = b"ctorch.distributed._shard.sharded_tensor.metadata\n"
    for name, old_name in (
        (b"TensorProperties\n", b"TensorProperties\n"),
        (b"_MEM_FORMAT_ENCODING\n", b"MEM_FORMAT_ENCODING\n"),
    ):
        new = b"ctorch.distributed.checkpoint.metadata\n" + name
        assert new in data
        data = data.replace(new, old + old_name)
    path.write_bytes(data)


def write_seeds():
    CORPUS.mkdir(exist_ok=True)
    for name in ("plain", "old"):
        metadata = (HERE / name / ".metadata").read_bytes()
        chunks = (HERE / name / "__0_0.distcp").read_bytes()
        (CORPUS / name).write_bytes(struct.pack("<I", len(metadata)) + metadata + chunks)


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    file = HERE / "store"
    torch.multiprocessing.spawn(run, (file.resolve(),), nprocs=2)
    file.unlink(missing_ok=True)
    os.chdir(HERE)
    plain = {
        "weight": counted(2, 3).t(),
        "large": torch.tensor([2**40, -1]),
        "epoch": 3,
        "name": "text",
        "nested": {"tensors": [torch.tensor([1.5]), torch.tensor([2.5])], "rate": 0.5},
    }
    save(plain, "plain")
    tensors = {"weight": plain["weight"], "large": plain["large"]}
    tensors |= {f"nested.tensors.{i}": x for i, x in enumerate(plain["nested"]["tensors"])}
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, "plain.safetensors")
    save({"weight": counted(2, 3)}, "old")
    make_old(HERE / "old")
    write_seeds()


if __name__ == "__main__":
    main()
