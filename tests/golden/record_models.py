"""Records small models of Transformers, for tests/nn: writes llama_tiny/, llama_tied/,
bert_classifier/ and bert_masked_lm/ (models as Transformers saves them) and models.safetensors
(their outputs).

A trajectory is the loss of each of 20 steps of AdamW that cycle through four batches and start with
the weights in the folder, in float64 and in float32.
"""

import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional as F

from llama_in_dtype import llama_in_dtype

HERE = pathlib.Path(__file__).parent
STEPS = 20
BATCHES = 4
record = {}


def keep(prefix, **tensors):
    for name, tensor in tensors.items():
        record[f"{prefix}.{name}"] = tensor.detach().clone().contiguous()


def save(name, model):
    """Sets weights such that every part affects the result, saves the model and returns it as loaded."""
    with torch.no_grad():
        for parameter_name, p in model.named_parameters():
            is_norm = "norm" in parameter_name.lower() and parameter_name.endswith("weight")
            p.normal_(1.0 if is_norm else 0.0, 0.2)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return type(model).from_pretrained(folder, attn_implementation="eager").eval()


def trajectory(name, cls, loss_of):
    """Trains the saved model and records the losses that loss_of(model, batch) returns."""
    for dtype in (torch.float64, torch.float32):
        # Uses sdpa, because eager attention of Llama computes its softmax in float32 for every dtype.
        model = cls.from_pretrained(HERE / name, attn_implementation="sdpa", dtype=dtype).train()
        adamw = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
        losses = []
        for step in range(STEPS):
            loss = loss_of(model, step % BATCHES)
            loss.backward()
            adamw.step()
            adamw.zero_grad()
            losses.append(loss.detach())
        keep(name, **{f"losses_{str(dtype)[len('torch.'):]}": torch.stack(losses)})


def llama(name, **config):
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=24, intermediate_size=36, max_position_embeddings=16,
        bos_token_id=0, eos_token_id=0, **config,
    )
    model = save(name, transformers.LlamaForCausalLM(config))
    ids = torch.randint(0, 61, (2, 16))
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 11:] = 0
    with torch.no_grad():
        out = model(ids, labels=ids)  # Transformers shifts the labels itself
        masked = model(ids, attention_mask=mask)
        greedy = model.generate(
            ids[:1, :5], attention_mask=mask[:1, :5], max_new_tokens=11, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )
    keep(name, ids=ids, mask=mask, logits=out.logits, loss=out.loss, greedy=greedy,
         masked_logits=masked.logits)

    tokens = torch.randint(0, 61, (BATCHES, 3, 9))
    keep(name, tokens=tokens)

    def loss_of(model, batch):
        logits = model(tokens[batch, :, :-1]).logits
        return F.cross_entropy(logits.flatten(0, 1), tokens[batch, :, 1:].flatten())

    with llama_in_dtype():
        trajectory(name, transformers.LlamaForCausalLM, loss_of)


# --- BERT


def bert_config(**config):
    return transformers.BertConfig(
        vocab_size=53, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=36, max_position_embeddings=12, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0, **config,
    )


def bert_inputs(*batch):
    """Returns batches with padding at the end, of up to half the length."""
    ids = torch.randint(1, 53, (*batch, 12))
    lengths = torch.randint(6, 13, (*batch, 1))
    mask = (torch.arange(12) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask,
            "token_type_ids": (torch.arange(12) >= 5).long().expand_as(ids)}


def bert(name, cls, config, labels_of):
    model = save(name, cls(config))
    inputs = bert_inputs(3)
    with torch.no_grad():
        keep(name, **inputs, logits=model(**inputs).logits,
             plain_logits=model(inputs["input_ids"]).logits)
        hidden = model.bert(**inputs)
        keep(name, hidden=hidden.last_hidden_state)
        if hidden.pooler_output is not None:
            keep(name, pooled=hidden.pooler_output)
    batches = bert_inputs(BATCHES, 4)
    labels = labels_of(batches)
    keep(f"{name}.batches", **batches, labels=labels)
    trajectory(name, cls, lambda model, batch: model(
        **{key: value[batch] for key, value in batches.items()}, labels=labels[batch]).loss)


def masked_labels(batches):
    chosen = (torch.rand(batches["input_ids"].shape) < 0.3) & batches["attention_mask"].bool()
    return torch.where(chosen, batches["input_ids"], -100)


def main():
    torch.manual_seed(1)
    llama("llama_tiny", num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    llama("llama_tied", num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=1,
          head_dim=10, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
          rope_parameters={"rope_type": "default", "rope_theta": 500.0}, rms_norm_eps=1e-5,
          pad_token_id=3)
    bert("bert_classifier", transformers.BertForSequenceClassification,
         bert_config(id2label={0: "first", 1: "second", 2: "third"},
                     label2id={"first": 0, "second": 1, "third": 2}),
         lambda batches: torch.randint(0, 3, (BATCHES, 4)))
    bert("bert_masked_lm", transformers.BertForMaskedLM, bert_config(hidden_act="gelu_new"),
         masked_labels)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    save_file(record, HERE / "models.safetensors", {"source": versions})


main()
