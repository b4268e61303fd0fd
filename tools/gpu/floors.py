"""The lowest acceptable speed of each kernel in bench_gpu_kernels.

A floor is a share of the measured roof: for kernels limited by memory bandwidth, the rate of a
large copy; for products, attention and convolution, the rate of a large bf16 product. A kernel below
its floor is broken rather than slow: it does not use the tensor cores, does not load 16 bytes at a
time, or spills registers. The floors are estimates from the reads, writes and operations of each kernel,
to be raised as measurements arrive.
"""

# The first row that matches is used. The fields are the beginning of the op, the dtypes (empty:
# all) and the floor. None: no floor, because the row measures the host.
FLOORS = (
    ("host ", (), None),
    ("matmul tf32", (), 0.2),
    ("matmul", ("f32",), 0.02),  # CUDA cores
    ("matmul", (), 0.3),
    ("attention", ("f32",), 0.01),
    ("attention", (), 0.2),
    ("conv2d", ("f32",), 0.01),
    ("conv2d", (), 0.02),  # the first layers are limited by memory
    ("embedding_backward", (), 0.1),  # sorts the ids first
    ("embedding", (), 0.3),
    ("copy transposed", (), 0.4),
    ("dropout", (), 0.4),
    ("layer_norm_backward", (), 0.4),
    ("rms_norm_backward", (), 0.4),
    ("adamw", (), 0.6),
    ("gradient_norm", (), 0.6),
    ("", (), 0.6),
)


def floor_of(op, dtype):
    """Returns the floor of a row, or None."""
    return next(floor for prefix, dtypes, floor in FLOORS
                if op.startswith(prefix) and (not dtypes or dtype in dtypes))


def failure_of(row):
    """Returns why a row of bench_gpu_kernels fails, or an empty string."""
    if "error" in row:
        return row["error"]
    if row.get("fallback"):
        return f"a fallback kernel ran: {row['fallback']}"
    floor, share = floor_of(row["op"], row["dtype"]), row.get("roof_share")
    if floor is None:
        return ""
    if share is None:
        return "the share of the roof was not measured"
    if share < floor:
        return f"below its floor: {share:.3f} of the roof, at least {floor} is expected"
    return ""
