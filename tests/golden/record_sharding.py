"""Records the training of small models with PyTorch's FSDP 2 (fully_shard) on two processes with
Gloo, for tests/dist/sharding: writes sharding.json.

    python -m torch.distributed.run --standalone --nproc_per_node 2 record_sharding.py

The models are the folders gpt2_tiny and llama_tiny, in float32. Sequence b of step s has the ids
(i * i + 5 s + 3 b) mod 61 for i = 0 to 12; a batch has 8 sequences, half of them for each process.
AdamW with a learning rate of 1e-3 and a weight decay of 0.01 follows clipping at a norm of 1.
"""

import json
import pathlib

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard

FOLDER = pathlib.Path(__file__).parent
STEPS, BATCH, LENGTH = 10, 8, 12


def ids_of(step, vocabulary):
    return torch.tensor([[(i * i + 5 * step + 3 * b) % vocabulary for i in range(LENGTH + 1)]
                         for b in range(BATCH)])


def train(name, blocks_of):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / name, dtype=torch.float32)
    model.train()
    for block in blocks_of(model):
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    rank, share = dist.get_rank(), BATCH // dist.get_world_size()
    losses, norms = [], []
    for step in range(STEPS):
        ids = ids_of(step, model.config.vocab_size)[rank * share:(rank + 1) * share]
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        losses.append(mean.item())
        norms.append(norm.full_tensor().item())
    return {"model": name, "losses": losses, "norms": norms}


def main():
    dist.init_process_group("gloo")
    cases = [train("gpt2_tiny", lambda model: model.transformer.h),
             train("llama_tiny", lambda model: model.model.layers)]
    if dist.get_rank() == 0:
        source = f"torch {torch.__version__}, transformers {transformers.__version__}"
        lines = ",\n".join("  " + json.dumps(case) for case in cases)
        (FOLDER / "sharding.json").write_text(
            f'{{\n "source": {json.dumps(source)},\n "cases": [\n{lines}\n ]\n}}\n')
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
