"""Records sequences that Transformers generates with the models in gpt2_tiny/ and llama_tiny/, for
tests/nn/generation: writes generation.json.

Each entry has a model, the prompts, the arguments of generate() and the sequences without padding.
Prompts of different lengths are padded at the left, as Transformers needs.
"""

import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).parent
PROMPTS = [[5, 17, 42], [3], [60, 2, 9, 11, 30], [7, 7, 1, 24]]
GREEDY = [
    {},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"eos_token_id": [13, 24, 40, 51]},
]
BEAMS = [
    {"num_beams": 2},
    {"num_beams": 4, "length_penalty": 0.0},
    {"num_beams": 3, "repetition_penalty": 1.5},
    {"num_beams": 3, "eos_token_id": [13, 24, 40, 51]},
    {"num_beams": 3, "eos_token_id": [13, 24, 40, 51], "early_stopping": True},
    {"num_beams": 4, "eos_token_id": list(range(0, 61, 4)), "length_penalty": 2.0},
    {"num_beams": 4, "eos_token_id": list(range(0, 61, 4)), "length_penalty": -1.0},
]
COUNT = 10


def generated(model, prompts, options):
    length = max(map(len, prompts))
    ids = torch.tensor([[0] * (length - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts])
    options = {"eos_token_id": None, **options}
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=COUNT, do_sample=False, pad_token_id=0, **options
    )
    sequences = []
    for prompt, row in zip(prompts, out.tolist()):
        new = row[length:]
        ends = options["eos_token_id"] or []
        first_end = next((i for i, token in enumerate(new) if token in ends), len(new))
        sequences.append(prompt + new[: first_end + 1])
    return sequences


entries = []
for name in ("gpt2_tiny", "llama_tiny"):
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float64).eval()
    for options in GREEDY + BEAMS:
        # A penalty of repetitions would also apply to the padding.
        if "num_beams" in options or "repetition_penalty" in options:
            sequences = [generated(model, [prompt], options)[0] for prompt in PROMPTS]
        else:
            sequences = generated(model, PROMPTS, options)
        entries.append({"model": name, "prompts": PROMPTS, "options": options,
                        "sequences": sequences})
lines = ",\n".join(json.dumps(entry) for entry in entries)
(HERE / "generation.json").write_text("[\n" + lines + "\n]\n")
