"""The models of the training steps, their floating-point operations, and the peaks of the machine."""

import json
import pathlib
import subprocess
import tempfile

# The number of steps of each model: enough for a few seconds.
STEPS = {
    "mlp": 1000, "tiny-mlp": 20000, "lenet": 1000, "resnet18": 8, "char-gpt": 120, "gpt2": 4,
    "gpt2-1024": 2, "llama": 8, "bert-base": 2, "resnet50": 12, "vit-tiny": 8,
}
# The models that are also measured in bf16.
IN_BF16 = {"char-gpt", "gpt2"}


def steps_of(model, scale):
    return max(2, int(STEPS[model] * scale))


def chain(batch, widths):
    """Layers with these widths: forward, gradients of the weights, and of all inputs but the
    first."""
    products = [2 * batch * a * b for a, b in zip(widths, widths[1:])]
    return 3 * sum(products) - products[0]


def convolutions(batch, layers):
    """Convolutions (side of the output, kernel, channels in and out); the first needs no gradient
    of its input."""
    products = [2 * batch * side**2 * kernel**2 * a * b for side, kernel, a, b in layers]
    return 3 * sum(products) - products[0]


def resnet18(batch):
    layers, channels = [(32, 3, 3, 64)], 64
    for side, width in ((32, 64), (16, 128), (8, 256), (4, 512)):
        layers += [(side, 3, channels, width)] + [(side, 3, width, width)] * 3
        if channels != width:
            layers.append((side, 1, channels, width))
        channels = width
    return convolutions(batch, layers) + 6 * batch * 512 * 10


def resnet50(batch, size):
    """Bottleneck blocks with the stride in the 3 x 3 convolution."""
    side = size // 4
    layers, channels = [(size // 2, 7, 3, 64)], 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            out = side // 2 if stage > 0 and block == 0 else side
            layers += [(side, 1, channels, width), (out, 3, width, width),
                       (out, 1, width, 4 * width)]
            if block == 0:
                layers.append((out, 1, channels, 4 * width))
            side, channels = out, 4 * width
    return convolutions(batch, layers) + 6 * batch * 2048 * 1000


def gpt(batch, steps, vocab, layers, width):
    """Products of the blocks and the output layer, and causal attention, which needs half of the
    scores."""
    weights = 12 * layers * width**2 + vocab * width
    attention = 2 * steps * width * layers
    return batch * steps * (6 * weights + 3 * attention)


def llama(batch, steps, vocab, layers, width, hidden, key_value_width):
    """As gpt(), with the products of grouped queries and SwiGLU."""
    weights = layers * width * (2 * width + 2 * key_value_width + 3 * hidden) + vocab * width
    attention = 2 * steps * width * layers
    return batch * steps * (6 * weights + 3 * attention)


def encoder(batch, steps, layers, width):
    """Products and full attention of the blocks of a BERT or ViT."""
    return batch * steps * layers * (6 * 12 * width**2 + 3 * 4 * steps * width)


def vit(batch, size, patch, layers, width, classes):
    patches = (size // patch) ** 2
    # The projection of the patches needs no gradient of its input.
    projection = 4 * batch * patches * 3 * patch**2 * width
    return projection + encoder(batch, patches + 1, layers, width) + 6 * batch * width * classes


# The operations of products and convolutions in one step.
OPERATIONS = {
    "mlp": chain(128, (784, 512, 512, 10)),
    "tiny-mlp": chain(8, (64, 64, 10)),
    "lenet": convolutions(64, [(28, 5, 1, 6), (10, 5, 6, 16)]) + 6 * 64 * (
        400 * 120 + 120 * 84 + 84 * 10),
    "resnet18": resnet18(32),
    "char-gpt": gpt(12, 64, 65, 4, 128),
    "gpt2": gpt(4, 64, 50257, 12, 768),
    "gpt2-1024": gpt(1, 1024, 50257, 12, 768),
    "llama": llama(2, 256, 8192, 8, 512, 1376, 256),
    "bert-base": encoder(8, 128, 12, 768) + 6 * 8 * 768 * (768 + 2),
    "resnet50": resnet50(16, 64),
    "vit-tiny": vit(8, 224, 16, 12, 192, 1000),
}


def peaks(axle, threads):
    """The operations per second that `axle bench` measures with this number of threads, by dtype.
    A CPU without an instruction for bf16 computes bf16 products in f32."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "peaks.json"
        subprocess.run([axle, "bench", "matmul:64x64x64", "--dtype", "f32", "--threads",
                        str(threads), "--cache", "hot", "--compare", "none", "--min-time", "0.01",
                        "--json", str(path)], check=True, capture_output=True)
        found = json.loads(path.read_text())["peaks"][0]
    f32 = found["f32_gflops"]
    return {"f32": 1e9 * f32, "bf16": 1e9 * found.get("bf16_gflops", f32)}
