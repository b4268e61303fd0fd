"""Measures the collectives of bench_dist in PyTorch with Gloo.

Usage: bench/peers/dist.py [PROCESSES]
"""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def row(name, count, times, call):
    seconds = []
    for i in range(times + 3):
        start = time.perf_counter()
        call()
        if i >= 3:
            seconds.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        seconds.sort()
        median = seconds[len(seconds) // 2]
        print(f"{name:16} {count:10} {median * 1e6:12.1f} {seconds[0] * 1e6:12.1f} "
              f"{count / median * 1e-9:8.2f}", flush=True)


def run(rank, size, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    if rank == 0:
        print(f"{size} processes, PyTorch {torch.__version__}\n{'':16} {'bytes':>10} "
              f"{'median us':>12} {'least us':>12} {'GB/s':>8}")
    row("barrier", 0, 2000, dist.barrier)
    for count in (1, 1024, 16384, 262144, 6553600):
        x = torch.ones(count)
        times = 40 if count > 1000000 else 300 if count > 100000 else 1500
        row("all_reduce", count * 4, times, lambda: dist.all_reduce(x, op=dist.ReduceOp.MAX))
    large = torch.ones(6553600)
    try:
        y = large.to(torch.bfloat16)
        row("all_reduce bf16", 6553600 * 2, 40, lambda: dist.all_reduce(y, op=dist.ReduceOp.MAX))
    except RuntimeError as error:
        if rank == 0:
            print(f"all_reduce bf16  {error}")
    row("broadcast", 6553600 * 4, 40, lambda: dist.broadcast(large, 0))
    parts = [torch.empty(6553600) for _ in range(size)]
    row("all_gather", 6553600 * 4, 20, lambda: dist.all_gather(parts, large))
    dist.destroy_process_group()


if __name__ == "__main__":
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        free = listener.getsockname()[1]
    multiprocessing.spawn(run, (processes, free), nprocs=processes)
