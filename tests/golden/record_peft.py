"""Records adapters of PEFT, for tests/nn/adapters: writes peft/ (adapters as PEFT saves them, for the
models in gpt2_tiny/, llama_tiny/ and bert_classifier/) and peft.safetensors (logits, merged weights
and losses).

A trajectory is the loss of each of ten steps of AdamW that start with the saved adapter, in float64.
"""

import pathlib
import shutil

import peft
import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional as F

from llama_in_dtype import llama_in_dtype

HERE = pathlib.Path(__file__).parent
STEPS = 10
record = {}

ADAPTERS = {
    "gpt2": (
        "gpt2_tiny", transformers.AutoModelForCausalLM,
        dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], task_type="CAUSAL_LM",
             bias="lora_only", rank_pattern={"mlp.c_proj": 2},
             alpha_pattern={r".*h\.1\.attn\.c_attn": 3}),
    ),
    "llama": (
        "llama_tiny", transformers.AutoModelForCausalLM,
        dict(r=3, lora_alpha=5, use_rslora=True, target_modules=r".*self_attn\.[qv]_proj",
             task_type="CAUSAL_LM"),
    ),
    "llama_all": (
        "llama_tiny", transformers.AutoModelForCausalLM,
        dict(r=2, lora_alpha=4, target_modules="all-linear", exclude_modules=["k_proj"],
             init_lora_weights="gaussian", task_type="CAUSAL_LM"),
    ),
    "bert": (
        "bert_classifier", transformers.AutoModelForSequenceClassification,
        dict(r=2, lora_alpha=2, target_modules=["query", "value"], task_type="SEQ_CLS", bias="all"),
    ),
}


def adapted(name):
    """Returns the saved model with its saved adapter, in float64."""
    base, cls, _ = ADAPTERS[name]
    model = cls.from_pretrained(HERE / base, attn_implementation="sdpa", dtype=torch.float64)
    return peft.PeftModel.from_pretrained(
        model, HERE / "peft" / name, is_trainable=True, autocast_adapter_dtype=False
    )


def write_adapter(name):
    base, cls, options = ADAPTERS[name]
    model = peft.get_peft_model(cls.from_pretrained(HERE / base), peft.LoraConfig(**options))
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.normal_(0, 0.3)
    model.peft_config["default"].base_model_name_or_path = base
    folder = HERE / "peft" / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()


def loss_of(model, ids):
    if model.config.model_type == "bert":
        return model(ids, labels=record["bert.labels"]).loss
    logits = model(ids[:, :-1]).logits
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def record_adapter(name):
    model = adapted(name).eval()
    ids = torch.randint(0, model.config.vocab_size, (2, 9))
    record[f"{name}.ids"] = ids
    if name == "bert":
        record["bert.labels"] = torch.randint(0, model.config.num_labels, (2,))
    with torch.no_grad():
        record[f"{name}.logits"] = model(ids).logits
        with model.disable_adapter():
            if name != "bert":  # disables the trained classifier, but not the trained biases
                record[f"{name}.base_logits"] = model(ids).logits

    adamw = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model, ids)
        loss.backward()
        adamw.step()
        adamw.zero_grad()
        losses.append(loss.detach())
    record[f"{name}.losses"] = torch.stack(losses)

    merged = adapted(name).merge_and_unload().state_dict()
    weight = next(n for n in merged if n.endswith(("c_attn.weight", "q_proj.weight", "query.weight")))
    record[f"{name}.merged"] = merged[weight]


torch.manual_seed(0)
(HERE / "peft").mkdir(exist_ok=True)
for adapter in ADAPTERS:
    write_adapter(adapter)
    with llama_in_dtype():
        record_adapter(adapter)
save_file({name: tensor.contiguous() for name, tensor in record.items()}, HERE / "peft.safetensors")
