"""Writes checkpoints with DeepSpeed on CPUs: DS_ACCELERATOR=cpu python record_deepspeed.py

deepspeed/<name> is the folder that save_checkpoint() has written after three steps, without its
scripts. deepspeed/<name>.safetensors has the weights that zero_to_fp32 of DeepSpeed returns for the
folder. For stage 0, it has the state dict of the model. The names are

    stage0   one process, f32
    stage1   two processes, bf16 with f32 master weights
    stage2   two processes, f32
    stage3   three processes, f32, small groups of parameters
    stage3_bf16   two processes, bf16 with f32 master weights

The model has a tied weight, frozen weights, buffers and two groups of parameters.
deepspeed/record.json has the versions.

tests/fuzz/corpus/deepspeed_checkpoint/ gets inputs of the fuzzer, from one process: the stage, the
length of the states of the model in four bytes, and the two files.
"""

import json
import os
import pathlib
import shutil
import struct
import sys
import tempfile

import deepspeed
import safetensors.torch
import torch
import torch.multiprocessing as mp
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

HERE = pathlib.Path(__file__).with_name("deepspeed")
CORPUS = pathlib.Path(__file__).parents[1] / "fuzz/corpus/deepspeed_checkpoint"
STEPS = 3
CASES = {
    "stage0": (1, "fp32", {"stage": 0}),
    "stage1": (2, "bf16", {"stage": 1}),
    "stage2": (2, "fp32", {"stage": 2}),
    "stage3": (3, "fp32", {"stage": 3, "sub_group_size": 10}),
    "stage3_bf16": (2, "bf16", {"stage": 3}),
}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 3)
        self.body = torch.nn.Linear(3, 5)
        self.norm = torch.nn.LayerNorm(5)
        self.frozen = torch.nn.Linear(5, 3)
        self.head = torch.nn.Linear(3, 7, bias=False)
        self.head.weight = self.embed.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 3))
        self.register_buffer("seen", torch.tensor(11))

    def forward(self, x):
        hidden = self.frozen(self.norm(self.body(self.embed(x))))
        return self.head(hidden * self.scale.to(hidden.dtype))


def train(rank, world, precision, zero, port, folder):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo")
    model = Model()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0},
    ], lr=1e-2)
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": zero,
              "zero_allow_untested_optimizer": True}
    if precision != "fp32":
        config[precision] = {"enabled": True}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(STEPS):
        x = (torch.arange(4) * 3 + rank + step) % 7
        loss = torch.nn.functional.cross_entropy(engine(x).float(), x)
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(folder)
    if rank == 0 and zero["stage"] == 0:
        safetensors.torch.save_file(
            {name: tensor.clone() for name, tensor in model.state_dict().items()},
            folder + ".safetensors")


def record(name, port):
    world, precision, zero = CASES[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = temporary + "/" + name
        mp.spawn(train, (world, precision, zero, port, folder), nprocs=world)
        if zero["stage"] > 0:
            weights = get_fp32_state_dict_from_zero_checkpoint(folder)
            safetensors.torch.save_file(
                {key: tensor.clone().contiguous() for key, tensor in weights.items()},
                folder + ".safetensors")
        for script in pathlib.Path(folder).glob("*.py"):
            script.unlink()
        shutil.rmtree(HERE / name, ignore_errors=True)
        shutil.move(folder, HERE / name)
        shutil.move(folder + ".safetensors", HERE / f"{name}.safetensors")


def record_corpus(stage, port):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (1, "fp32", {"stage": stage}, port, folder), nprocs=1)
        tag = pathlib.Path(folder) / f"global_step{STEPS}"
        model, = (path.read_bytes() for path in tag.glob("*_model_states.pt"))
        optimizer, = (path.read_bytes() for path in tag.glob("*_optim_states.pt"))
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / f"stage{stage}").write_bytes(
        str(stage).encode() + struct.pack("<I", len(model)) + model + optimizer)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for i, name in enumerate(sys.argv[1:] or CASES):
        record(name, 29731 + i)
    if not sys.argv[1:]:
        record_corpus(2, 29741)
        record_corpus(3, 29742)
    (HERE / "record.json").write_text(json.dumps(
        {"deepspeed": deepspeed.__version__, "torch": torch.__version__}, indent=2) + "\n")
