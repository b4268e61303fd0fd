#!/usr/bin/env python3
"""The worker of bench_train_step --serve in PyTorch, with the same model, weights, data and
requests (see bench/serve.h).

Steps run eagerly by default. --compile default or reduce-overhead uses torch.compile, and --compile
graph captures each step as one CUDA graph. Uses the fastest known settings: fused optimizers, fused
attention as PyTorch selects it, autocast to bf16, f32 products in TF32, and foreach clipping.
"""

import argparse
import json
import os
import sys
import time

import torch

import train_step
from hashed import DATA_KEY, hashed_floats, hashed_ids, set_hashed_weights

# The layers, heads and width of each model.
GPT2 = {
    "gpt2-124m": (12, 12, 768), "gpt2-350m": (24, 16, 1024),
    "gpt2-774m": (36, 20, 1280), "gpt2-1558m": (48, 25, 1600),
}


def training(arguments, device):
    """Returns the model, its optimizer, its batch and the norm to clip to."""
    name = arguments.model
    with torch.device(device):
        if name in GPT2:
            layers, heads, width = GPT2[name]
            made = train_step.gpt_training(
                1, 1, vocab=50304, positions=1024, layers=layers, heads=heads, width=width,
                bias=True, gelu="tanh")
            shape, vocab = (4, 1024), 50304
        else:
            made = train_step.TRAININGS[name]()
            layers = len(made[0].blocks) if hasattr(made[0], "blocks") else 0
            shape, vocab = made[2][0].shape, made[0].tokens.num_embeddings if layers else 10
    model, optimizer, data, max_norm, _ = made
    set_hashed_weights(model, layers, device)
    if layers:
        for group in optimizer.param_groups:
            group["lr"] = 1e-4
        shape = (arguments.batch or shape[0], arguments.time or shape[1])
        data = [hashed_ids(DATA_KEY + i, shape, vocab, device) for i in range(2)]
    else:
        shape = (arguments.batch or shape[0], *shape[1:])
        x = hashed_floats(DATA_KEY, shape, 1.7, device)
        if data[0].is_contiguous(memory_format=torch.channels_last) and x.dim() == 4:
            x = x.to(memory_format=torch.channels_last)
        data = [x, hashed_ids(DATA_KEY + 1, shape[:1], vocab, device)]
    return model, optimizer, data, max_norm


def captured(step):
    """Captures the step as one graph, after a few warm-up steps on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss.clone()
    return replay


def stepper(arguments, device):
    model, optimizer, data, max_norm = training(arguments, device)
    parameters = list(model.parameters())
    run = model
    if arguments.compile in ("default", "reduce-overhead"):
        run = torch.compile(model, mode=arguments.compile)
    if arguments.compile == "graph":
        for group in optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = True
    autocast = arguments.dtype == "bf16"

    def step():
        # The autocast cache must be off; otherwise a captured step would use old casts of the
        # weights.
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast,
                            cache_enabled=arguments.compile != "graph"):
            loss = run(*data)
        loss.backward()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().clone()

    if arguments.compile != "graph":
        return step, model
    state = [step, 0]

    def graph_step():
        # The state is restored after the warm-up of the graph, so that the first steps are the same
        # as the first steps of the other engines.
        if state[1] == 0:
            kept = [p.detach().clone() for p in parameters]
            state[0] = captured(step)
            with torch.no_grad():
                for p, value in zip(parameters, kept):
                    p.copy_(value)
                for values in optimizer.state.values():
                    for value in values.values():
                        if torch.is_tensor(value):
                            value.zero_()
        state[1] += 1
        return state[0]()
    return graph_step, model


def timed(step, count, device):
    """Returns the milliseconds of each step, run without synchronization, and the last loss."""
    if device.type == "cpu":
        times = [time.perf_counter()]
        for _ in range(count):
            loss = step()
            times.append(time.perf_counter())
        return [1e3 * (b - a) for a, b in zip(times, times[1:])], loss
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        loss = step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])], loss


def peak_bytes(device):
    if device.type == "cpu":
        return train_step.peak_resident_bytes()
    return torch.cuda.max_memory_allocated()


def answer(line):
    print(json.dumps(line), flush=True)


def serve(arguments):
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("--device cuda: torch.cuda.is_available() is false")
    device = torch.device(arguments.device)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(arguments.threads)
    step, model = stepper(arguments, device)
    gpu = device.type == "cuda"
    name = "torch" + {None: "", "default": ".compile", "graph": ".graph"}.get(
        arguments.compile, f".compile.{arguments.compile}")
    answer({
        "engine": name, "version": torch.__version__,
        "device": torch.cuda.get_device_name() if gpu else "CPU",
        "cudnn": torch.backends.cudnn.version() if gpu else None,
        "parameters": sum(p.numel() for p in model.parameters()),
    })
    for line in sys.stdin:
        request, *count = line.split()
        if request == "quit":
            return
        if request == "check":
            answer({"losses": [step().item() for _ in range(int(count[0]))]})
        elif request == "run":
            step()  # allocates the memory that empty_cache() has freed
            ms, loss = timed(step, int(count[0]), device)
            answer({"ms": ms, "loss": loss.item(), "peak_bytes": peak_bytes(device)})
            if gpu:
                torch.cuda.empty_cache()  # frees memory for the other workers
        else:
            raise ValueError(f"expected a request such as 'run 10', 'check 10' or 'quit': {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=[*train_step.TRAININGS, *GPT2])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--compile", choices=("default", "reduce-overhead", "graph"))
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--time", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    try:
        serve(parser.parse_args())
    except Exception as error:  # the script that started this process reports it
        answer({"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    os._exit(0)  # exits immediately, because the compiler's workers need seconds to end


if __name__ == "__main__":
    main()
