#!/usr/bin/env python3
"""Measures what bench_generate measures, with generate() of Transformers, and prints a line of JSON.

--cache is the cache of keys and values: dynamic grows by concatenation, static is allocated for the
whole sequence. --compile applies torch.compile to the model (with the static cache). The models have
random weights, and attention is torch's fused function.
"""

import argparse
import json
import os
import platform
import re
import statistics
import time

import torch
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          StoppingCriteria, StoppingCriteriaList)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
LAYERS = {"gpt2": 12, "tinyllama": 22}


def model_of(name, layers, dtype):
    """The model, and the parameters of which a step reads only rows."""
    if name == "gpt2":
        config = GPT2Config(n_layer=layers, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        config._attn_implementation = "sdpa"
        model = GPT2LMHeadModel(config)
        return model.to(dtype).eval(), model.transformer.wpe.weight
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers,
        num_attention_heads=32, num_key_value_heads=4, attn_implementation="sdpa"))
    return model.to(dtype).eval(), model.model.embed_tokens.weight


class Clock(StoppingCriteria):
    """Notes the time after each step, and never stops."""

    def __init__(self):
        self.times = [time.perf_counter()]

    def __call__(self, ids, scores, **_):
        self.times.append(time.perf_counter())
        return torch.zeros(ids.shape[0], dtype=torch.bool)


def run(model, ids, arguments):
    """The milliseconds of the call that reads the prompts, and of each later step."""
    clock = Clock()
    options = {"cache_implementation": "static"} if arguments.cache == "static" else {}
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=arguments.tokens,
                   min_new_tokens=arguments.tokens, do_sample=False, num_beams=arguments.beams,
                   pad_token_id=0, stopping_criteria=StoppingCriteriaList([clock]), **options)
    ms = [1e3 * (b - a) for a, b in zip(clock.times, clock.times[1:])]
    return ms[0], ms[1:]


def peak_resident_bytes():
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=LAYERS, default="gpt2")
    parser.add_argument("--layers", type=int, default=0, help="0: all layers of the model")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", choices=("dynamic", "static"), default="dynamic")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    layers = arguments.layers or LAYERS[arguments.model]
    model, rows_only = model_of(arguments.model, layers, DTYPES[arguments.dtype])
    model.generation_config.eos_token_id = None
    count = sum(p.numel() for p in model.parameters())
    if arguments.compile:
        model.forward = torch.compile(model.forward)
    ids = torch.randint(model.config.vocab_size, (arguments.batch, arguments.prompt))
    if arguments.compile:
        run(model, ids, arguments)
    runs = [run(model, ids, arguments) for _ in range(arguments.rounds)]
    prompt = min(ms for ms, _ in runs)
    step = min(statistics.median(steps) for _, steps in runs)
    print(json.dumps({
        "engine": f"torch.{'compile' if arguments.compile else arguments.cache}",
        "version": torch.__version__,
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "model": arguments.model, "layers": layers, "parameters": count,
        "dtype": arguments.dtype, "threads": arguments.threads, "batch": arguments.batch,
        "beams": arguments.beams, "prompt": arguments.prompt, "tokens": arguments.tokens,
        "ms_per_prompt": prompt,
        "prompt_tokens_per_s": 1e3 * arguments.batch * arguments.prompt / prompt,
        "ms_per_step": step, "ms_per_step_min": min(min(steps) for _, steps in runs),
        "new_tokens_per_s": 1e3 * arguments.batch / step,
        "read_bytes_per_step": (count - rows_only.numel()) * rows_only.element_size(),
        "peak_resident_bytes": peak_resident_bytes(),
    }), flush=True)
    os._exit(0)  # exits immediately, because the compiler's workers need seconds to end


if __name__ == "__main__":
    main()
