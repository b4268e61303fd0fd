"""Writes pictures/: small JPEG and PNG images, and what Pillow and torchvision compute with them.

pictures.safetensors has the pixels of each image ("decoded.NAME.rgb" from Pillow and
"decoded.NAME.gray" from torchvision), results of Pillow's Image.resize, and boxes of torchvision's
RandomResizedCrop.
"""

import io
import json
import pathlib
import struct
import zlib

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import transforms
from torchvision.io import ImageReadMode, decode_image

OUT = pathlib.Path(__file__).with_name("pictures")
RESULTS = {}

# Heights and widths before and after a resize: up and down, odd sizes, sides of one pixel, and heights
# that shrink more than twice as much as widths (which Pillow 13 filters first).
RESIZES = [
    ((13, 19), (5, 7)),
    ((13, 19), (26, 38)),
    ((13, 19), (13, 8)),
    ((13, 19), (31, 19)),
    ((13, 19), (40, 3)),
    ((13, 19), (1, 1)),
    ((1, 19), (4, 6)),
    ((13, 1), (7, 5)),
    ((1, 1), (3, 4)),
    ((2, 3), (17, 16)),
    ((32, 24), (15, 11)),
    ((29, 13), (11, 9)),
    ((17, 9), (6, 21)),
    ((21, 10), (10, 5)),
]


def smooth(height, width, channels):
    """Returns u8 pixels that vary slowly, with an edge and some noise."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (4 + c) + c) * np.cos(y / (5 - c % 4)) for c in range(channels)]
    pixels = np.stack(planes, axis=-1)
    pixels[y > x] = 255 - pixels[y > x]
    noise = np.random.default_rng(height * 100 + width).normal(0, 6, pixels.shape)
    return np.clip(np.round(pixels + noise), 0, 255).astype(np.uint8)


def chunk(kind, data):
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def png(pixels, bits, color, interlaced=False, extra=b""):
    """Encodes an array of samples [height, width, channels], without filters."""
    height, width, _ = pixels.shape
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
                  (1, 0, 2, 1)]
    rows = b""
    for top, left, down, right in passes:
        part = pixels[top::down, left::right]
        if part.size == 0:
            continue
        for row in part:
            rows += b"\0" + row.astype(">u2" if bits == 16 else np.uint8).tobytes()
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra
            + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def images():
    color = Image.fromarray(smooth(13, 19, 3))
    gray = Image.fromarray(smooth(13, 19, 1)[..., 0])
    yield "subsampled.jpg", saved(color, "JPEG", quality=80)
    yield "full.jpg", saved(color, "JPEG", quality=90, subsampling=0)
    yield "progressive.jpg", saved(color, "JPEG", quality=80, progressive=True)
    yield "gray.jpg", saved(gray, "JPEG", quality=85)
    yield "cmyk.jpg", saved(Image.fromarray(smooth(13, 19, 4), "CMYK"), "JPEG", quality=85)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be rotated by 90 degrees
    yield "rotated.jpg", saved(color, "JPEG", quality=80, exif=exif)
    yield "color.png", saved(color, "PNG")
    yield "wide.png", saved(Image.fromarray(smooth(7, 31, 3)), "PNG")
    yield "alpha.png", saved(Image.fromarray(smooth(13, 19, 4)), "PNG")
    yield "palette.png", saved(color.quantize(13), "PNG", transparency=3)
    yield "gray.png", saved(gray, "PNG")
    yield "gray_alpha.png", saved(Image.fromarray(smooth(13, 19, 2), "LA"), "PNG")
    yield "black_and_white.png", saved(gray.convert("1"), "PNG")
    yield "interlaced.png", png(smooth(13, 19, 3), 8, 2, interlaced=True)
    wide = smooth(13, 19, 3).astype(np.uint16) * 256 + np.arange(19, dtype=np.uint16)[:, None] * 13
    yield "sixteen_bits.png", png(wide, 16, 2)


def large_images():
    """Yields JPEG images of several blocks in each direction, with all kinds of interpolated colors."""
    noise = np.random.default_rng(3).integers(0, 40, (75, 91, 4), dtype=np.uint8)
    pixels = smooth(75, 91, 4) // 4 * 3 + noise
    color = Image.fromarray(pixels[..., :3].copy())
    for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
        yield f"large_{name}.jpg", saved(color, "JPEG", quality=60, subsampling=subsampling)
    yield "large_restarts.jpg", saved(color, "JPEG", quality=60, restart_marker_blocks=4)
    yield "large_progressive.jpg", saved(color, "JPEG", quality=60, progressive=True)
    yield "large_gray.jpg", saved(color.convert("L"), "JPEG", quality=60)
    yield "large_cmyk.jpg", saved(Image.fromarray(pixels, "CMYK"), "JPEG", quality=60)


def record_decoding():
    for name, data in large_images():
        (OUT / name).write_bytes(data)
    for name, data in images():
        (OUT / name).write_bytes(data)
        image = Image.open(io.BytesIO(data)).convert("RGB")
        RESULTS[f"decoded.{name}.rgb"] = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        if name == "sixteen_bits.png":  # torchvision keeps 16 bits
            continue
        bytes_ = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        RESULTS[f"decoded.{name}.gray"] = decode_image(bytes_, ImageReadMode.GRAY)


def record_resizing():
    filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    for (height, width), (rows, columns) in RESIZES:
        for kind, channels in (("rgb", 3), ("gray", 1)):
            pixels = smooth(height, width, channels)
            image = Image.fromarray(pixels if channels == 3 else pixels[..., 0])
            RESULTS[f"resize.{kind}.{height}x{width}"] = torch.from_numpy(pixels).permute(2, 0, 1)
            for name, resample in filters.items():
                result = np.array(image.resize((columns, rows), resample)).reshape(rows, columns, -1)
                RESULTS[f"resize.{kind}.{height}x{width}.{rows}x{columns}.{name}"] = (
                    torch.from_numpy(result).permute(2, 0, 1))
    # The size of an image whose shorter side becomes n.
    sizes = []
    for height, width in ((13, 19), (19, 13), (7, 7), (1, 100), (333, 500), (500, 333), (640, 427)):
        for n in (1, 5, 7, 224, 256):
            result = transforms.functional.resize(Image.new("L", (width, height)), n)
            sizes.append([height, width, n, result.height, result.width])
    RESULTS["shorter_side"] = torch.tensor(sizes)


def record_crops():
    """Records the boxes that torchvision draws if its random numbers are those of a list."""
    generator = np.random.default_rng(5)
    uniform, randint = torch.Tensor.uniform_, torch.randint
    cases = []
    for height, width in ((13, 19), (480, 640), (1, 7), (50, 3), (3, 50), (224, 224)):
        for scale, ratio in (((0.08, 1), (3 / 4, 4 / 3)), ((0.5, 0.9), (1, 1)), ((0.9, 1), (2, 3))):
            numbers = [float(np.float32(generator.random(dtype=np.float32))) for _ in range(22)]
            left = list(numbers)
            torch.Tensor.uniform_ = lambda t, low=0, high=1: t.fill_(
                float(low) + (float(high) - float(low)) * left.pop(0))
            torch.randint = lambda low, high, size: torch.tensor([int(left.pop(0) * (high - low))])
            box = transforms.RandomResizedCrop.get_params(Image.new("L", (width, height)), scale, ratio)
            cases.append({"size": [height, width], "scale": scale, "ratio": ratio,
                          "numbers": numbers, "used": len(numbers) - len(left), "box": box})
    torch.Tensor.uniform_, torch.randint = uniform, randint
    (OUT / "crops.json").write_text(json.dumps(cases, indent=None, separators=(",", ":")) + "\n")


OUT.mkdir(exist_ok=True)
record_decoding()
record_resizing()
record_crops()
save_file({name: tensor.contiguous() for name, tensor in RESULTS.items()},
          OUT / "pictures.safetensors")
