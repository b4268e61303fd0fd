"""Writes complete states of FSDP with PyTorch: python record_fsdp_state.py

fsdp_state/full_1 and fsdp_state/full_2 are folders as Accelerate's save_state writes them for
FULL_STATE_DICT of FSDP 1 and 2: two processes have trained the model of record_dcp.py for three
steps. This script checks that the losses of the next steps agree with dcp/losses.json. PyTorch runs
on the CPU.
"""

import json
import os
import pathlib
import shutil

import torch
import torch.distributed as dist
from record_dcp import GO_ON, STEPS, batch, filled
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

HERE = pathlib.Path(__file__).with_name("fsdp_state")


# With offload_to_cpu=True, the states that FSDP 1 returns for models on the CPU share one buffer, so
# that exp_avg would have the values of exp_avg_sq (PyTorch 2.15).
def states_of_version_1(net, optimizer):
    FullyShardedDataParallel.set_state_dict_type(
        net,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=True),
    )
    return net.state_dict(), FullyShardedDataParallel.optim_state_dict(net, optimizer)


def states_of_version_2(net, optimizer):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return (
        get_model_state_dict(net, options=options),
        get_optimizer_state_dict(net, optimizer, options=options),
    )


def train_and_save(version, mesh):
    layers = [torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)]
    net = filled(torch.nn.Sequential(*layers).double())
    if version == 1:
        policy = ModuleWrapPolicy({torch.nn.Linear})
        net = FullyShardedDataParallel(
            net, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True
        )
    else:
        fully_shard(net[0], mesh=mesh)
        fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.1)
    losses = []
    for i in range(STEPS + GO_ON):
        if i == STEPS:
            states = states_of_version_1 if version == 1 else states_of_version_2
            model, state = states(net, optimizer)
            folder = HERE / f"full_{version}"
            if dist.get_rank() == 0:
                folder.mkdir()
                torch.save(model, folder / "pytorch_model_fsdp.bin")
                torch.save(state, folder / "optimizer.bin")
                torch.save({"step": STEPS}, folder / "random_states_0.pkl")
        x, y = batch(i)  # the same on both processes
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    expected = json.loads((HERE.parent / "dcp/losses.json").read_text())
    assert all(abs(a - b) < 1e-12 for a, b in zip(losses[STEPS:], expected, strict=True)), losses


def run(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for version in (1, 2):
        train_and_save(version, mesh)
        dist.barrier()
    dist.destroy_process_group()


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    file = HERE / "store"
    torch.multiprocessing.spawn(run, (file.resolve(),), nprocs=2)
    file.unlink(missing_ok=True)


if __name__ == "__main__":
    os.chdir(HERE.parent)
    main()
