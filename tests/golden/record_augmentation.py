"""Writes augmentation.json and augmentation.safetensors: what torchvision.transforms.v2 computes.

"cases" are operations on u8 images with their parameters, "magnitudes" the tables of RandAugment
("narrow") and TrivialAugmentWide ("wide"), "erased" the boxes of RandomErasing, and "mixed" the
batches of MixUp and CutMix. Tensors have the names that augmentation.json uses.
"""

import json
import math
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

OUT = pathlib.Path(__file__).with_name("augmentation.json")
TENSORS = {}


def image(name, channels, height, width):
    """Returns smooth pixels with noise, gray pixels, and a stripe of black, white and pure colors."""
    generator = np.random.default_rng(len(name) * 1000 + height)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (4 + c) + c) * np.cos(y / (5 - c)) for c in range(channels)]
    pixels = np.clip(np.stack(planes) + generator.normal(0, 20, (channels, height, width)), 0, 255)
    pixels = pixels.astype(np.uint8)
    pixels[:, 2] = pixels[0, 2]
    pixels[:, 3] = generator.integers(0, 2, (channels, width)) * 255
    TENSORS[name] = torch.from_numpy(pixels)


image("rgb", 3, 17, 23)
image("gray", 1, 17, 23)
image("square", 3, 14, 14)
image("large", 3, 48, 40)
image("wide", 1, 97, 131)
TENSORS["low"] = TENSORS["rgb"] // 4 + 60
TENSORS["flat"] = torch.full((3, 5, 4), 77, dtype=torch.uint8)
TENSORS["narrow"] = TENSORS["rgb"][:, :, :2].contiguous()
# Every 17th value of each channel: 4096 colors.
levels = torch.arange(0, 256, 17).to(torch.uint8)
TENSORS["colors"] = torch.stack(torch.meshgrid(levels, levels, levels, indexing="ij")).view(3, 16, 256)


def degrees(level):
    return math.degrees(math.atan(level))


def moved(angle=0.0, translate=(0, 0), shear=(0.0, 0.0), center=None):
    return lambda x: F.affine(x, angle, list(translate), 1.0, list(shear), center=center)


OPS = {
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "saturation": F.adjust_saturation,
    "hue": F.adjust_hue,
    "sharpness": F.adjust_sharpness,
    "posterize": lambda x, bits: F.posterize(x, int(bits)),
    "solarize": F.solarize,
    "autocontrast": lambda x, _: F.autocontrast(x),
    "equalize": lambda x, _: F.equalize(x),
    "grayscale": lambda x, _: F.rgb_to_grayscale(x, x.shape[0]),
    "shear_x": lambda x, level: moved(shear=(degrees(level), 0.0), center=[0, 0])(x),
    "shear_y": lambda x, level: moved(shear=(0.0, degrees(level)), center=[0, 0])(x),
    "translate_x": lambda x, n: moved(translate=(int(n), 0))(x),
    "translate_y": lambda x, n: moved(translate=(0, int(n)))(x),
    "rotate": F.rotate,
    "blur_3": lambda x, sigma: F.gaussian_blur(x, [3, 3], [sigma, sigma]),
    "blur_9_5": lambda x, sigma: F.gaussian_blur(x, [5, 9], [sigma, sigma]),  # width, height
}


def cases():
    for name in ("brightness", "contrast", "saturation", "sharpness"):
        for factor in (0.0, 0.37, 1.0, 1.9):
            yield name, factor, ("rgb", "gray") if factor == 0.37 else ("rgb",)
        yield name, 0.73, ("low", "flat", "narrow")
    yield "saturation", 1.4, ("colors",)
    for factor in (-0.5, -0.13, 0.0, 0.29, 0.5):
        yield "hue", factor, ("rgb", "gray") if factor == 0.29 else ("rgb",)
    yield "hue", 0.0625, ("colors",)
    for bits in (0, 1, 3, 8):
        yield "posterize", bits, ("rgb",)
    for threshold in (0.0, 127.5, 200.0, 255.0):
        yield "solarize", threshold, ("rgb",)
    for name in ("autocontrast", "equalize"):
        yield name, 0, ("rgb", "gray", "low", "flat", "large")
    for name in ("shear_x", "shear_y"):
        for level in (0.0, 0.033, -0.297, 0.99):
            yield name, level, ("rgb", "gray") if level == 0.99 else ("large",)
    yield "shear_y", -0.2, ("wide",)  # depends on the last bit of positions
    for name in ("translate_x", "translate_y"):
        for pixels in (0, 1, -5, 32):
            yield name, pixels, ("rgb",)
    for angle in (0.0, 4.5, -27.0, 45.0, 90.0, -90.0, 135.0, 180.0):
        yield "rotate", angle, ("rgb", "square", "gray") if angle == -27.0 else ("rgb", "square")
    yield "rotate", 58.5, ("large",)
    yield "grayscale", 0, ("rgb", "gray", "colors")
    for sigma in (0.1, 0.5, 0.8, 1.37, 100.0):
        yield "blur_3", sigma, ("rgb", "gray", "large")
        yield "blur_9_5", sigma, ("rgb", "large")
    yield "blur_9_5", 1.9, ("wide",)
    yield "blur_3", 0.7, ("flat", "narrow", "colors")


def record_cases():
    records = []
    for op, parameter, images in cases():
        # The factors of random transforms are f32.
        parameter = float(np.float32(parameter))
        for name in images:
            result = f"{op}.{len(records)}"
            TENSORS[result] = OPS[op](TENSORS[name], parameter)
            records.append({"op": op, "parameter": parameter, "image": name, "result": result})
    return records


def record_magnitudes():
    names = ("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness",
             "Color", "Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize")
    records = []
    for space, cls in (("narrow", v2.RandAugment), ("wide", v2.TrivialAugmentWide)):
        assert tuple(cls._AUGMENTATION_SPACE) == names
        for bins, height, width in ((31, 32, 32), (31, 224, 160), (10, 224, 224)):
            for index, name in enumerate(names):
                function, signed = cls._AUGMENTATION_SPACE[name]
                values = function(bins, height, width)
                records.append({"space": space, "op": index, "signed": signed, "bins": bins,
                                "size": [height, width],
                                "values": [0.0] * bins if values is None
                                else [float(v) for v in values]})
    return records


def record_erased():
    """Records the boxes that torchvision draws if its random numbers are those of a list."""
    generator = np.random.default_rng(9)
    uniform, randint = torch.Tensor.uniform_, torch.randint
    records = []
    for height, width in ((32, 32), (224, 160), (1, 7), (4, 50)):
        for scale, ratio in (((0.02, 0.33), (0.3, 3.3)), ((0.9, 1), (1, 1)), ((0, 0.001), (0.5, 2))):
            numbers = [float(np.float32(generator.random(dtype=np.float32))) for _ in range(22)]
            left = list(numbers)
            torch.Tensor.uniform_ = lambda t, low=0, high=1: t.fill_(
                float(low) + (float(high) - float(low)) * left.pop(0))
            torch.randint = lambda low, high, size: torch.tensor([int(left.pop(0) * (high - low))])
            params = v2.RandomErasing(scale=scale, ratio=ratio).make_params(
                [torch.zeros(3, height, width)])
            box = [params[k] for k in "ijhw"] if params["v"] is not None else None
            records.append({"size": [height, width], "scale": scale, "ratio": ratio,
                            "numbers": numbers, "used": len(numbers) - len(left), "box": box})
    torch.Tensor.uniform_, torch.randint = uniform, randint
    return records


def record_mixed():
    generator = torch.Generator().manual_seed(4)
    TENSORS["mix.images"] = torch.randn(4, 2, 7, 10, generator=generator)
    TENSORS["mix.labels"] = torch.tensor([2, 0, 1, 2])
    randint = torch.randint
    records = []
    for number, (lam, x, y) in enumerate(((0.3, 4, 3), (0.0, 9, 0), (1.0, 5, 5), (0.77, 0, 6))):
        lam = float(np.float32(lam))
        for name, cls in (("mixup", v2.MixUp), ("cutmix", v2.CutMix)):
            transform = cls(num_classes=3)
            transform._dist.sample = lambda _: torch.tensor([lam])
            center = [x, y]
            torch.randint = lambda high, size: torch.tensor([center.pop(0)])
            images, labels = transform(TENSORS["mix.images"], TENSORS["mix.labels"])
            torch.randint = randint
            TENSORS[f"{name}.{number}.images"], TENSORS[f"{name}.{number}.labels"] = images, labels
        records.append({"lambda": lam, "x": x, "y": y})
    return records


torch.set_num_threads(1)
RESULT = {"cases": record_cases(), "magnitudes": record_magnitudes(), "erased": record_erased(),
          "mixed": record_mixed()}
OUT.write_text("{\n" + ",\n".join(
    f'"{key}": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]"
    for key, rows in RESULT.items()) + "\n}\n")
save_file({name: tensor.contiguous().clone() for name, tensor in TENSORS.items()},
          OUT.with_suffix(".safetensors"))
