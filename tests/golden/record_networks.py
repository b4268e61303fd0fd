"""Records small models of torchvision, Transformers and diffusers, for tests/nn/models:

    python tests/golden/record_networks.py [NAME...]

writes networks/<name>.json for the named models, or for all of them. A file contains
- state: the names and shapes of the tensors, as in published files,
- config: the text of config.json, for models of Transformers,
- out: the output for batch 0, in float64,
- gradient: the norm of all gradients of the loss of batch 0, in float64,
- f64 and f32: the loss of each of 20 training steps, which alternate between two batches,
- eval: the loss in evaluation mode after these steps, in float64.

Weights and inputs are not stored: element i of a tensor is computed exactly from a hash of i and of
the tensor's name, here and in tests/nn/models/network.h. Dropout is 0.

Tested with PyTorch 2.15, torchvision 0.29, Transformers 5.24 and diffusers 0.42.
"""

import json
import pathlib
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

import network_programs  # noqa: F401, adds its programs to MODELS
from network_recording import (HERE, MODELS, adamw, classifier, fill, images, integers, model, record, sgd,
                               tokens, uniform, weight)

# --- models of Transformers


def transformers_model(cls, config, change=None, **kwargs):
    """Returns make(dtype), which loads formula weights from a file as the class itself writes it, and the
    arguments `state` and `more` of record(). change(tensors) can change these weights."""
    with tempfile.TemporaryDirectory() as folder:
        cls(config).save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            state = {key: file.get_slice(key).get_shape() for key in file.keys()}
        text = pathlib.Path(folder, "config.json").read_text()

    def make(dtype):
        with tempfile.TemporaryDirectory() as path:
            tensors = {key: weight(key, shape).to(dtype) for key, shape in state.items()}
            pathlib.Path(path, "config.json").write_text(text)
            save_file(tensors, f"{path}/model.safetensors", {"format": "pt"})
            loaded = cls.from_pretrained(path, dtype=dtype, attn_implementation="eager", **kwargs)
            return change(loaded) if change else loaded

    more = {"config": json.loads(text)}
    return make, {"state": sorted(state.items()), "more": more}


# --- vision transformers


@model
def vision_transformer(name):
    import torchvision
    classifier(name, lambda: torchvision.models.VisionTransformer(
        image_size=8, patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=24, num_classes=10,
        representation_size=12), 8, adamw(3e-3))


@model
def vit(name):
    import transformers
    make, options = transformers_model(transformers.ViTForImageClassification, transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=8,
        patch_size=4, id2label={i: f"class {i}" for i in range(10)}))
    record(name, make, lambda m, batch, dtype: m(images(8, batch, dtype)).logits,
           lambda y, batch, dtype: F.cross_entropy(y, integers((4,), f"labels{batch}", 10)),
           adamw(3e-3), **options)


# --- language models


def language_model(name, cls, config, lr=3e-3, **kwargs):
    make, options = transformers_model(cls, config)
    record(name, make, lambda m, batch, dtype: m(tokens(batch, 29), **kwargs).logits,
           lambda y, batch, dtype: F.cross_entropy(y.flatten(0, 1), tokens(batch, 29, "labels").flatten()),
           adamw(lr), **options)


def llama(name, max_position_embeddings=64, **rope):
    import transformers
    language_model(name, transformers.LlamaForCausalLM, transformers.LlamaConfig(
        vocab_size=29, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=max_position_embeddings, bos_token_id=0, eos_token_id=0,
        rope_parameters={"rope_theta": 10000.0, **rope}))


@model
def llama3_rope(name):
    llama(name, max_position_embeddings=128, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
          original_max_position_embeddings=64)


@model
def linear_rope(name):
    llama(name, rope_type="linear", factor=4.0)


@model
def dynamic_rope(name):
    llama(name, max_position_embeddings=8, rope_type="dynamic", factor=2.0)


@model
def mixtral(name):
    import transformers
    config = transformers.MixtralConfig(
        vocab_size=29, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, num_local_experts=4, bos_token_id=0, eos_token_id=0,
        output_router_logits=True, router_aux_loss_coef=0.02)
    make, options = transformers_model(transformers.MixtralForCausalLM, config, experts_implementation="eager")

    def out(m, batch, dtype):
        return m(tokens(batch, 29), output_router_logits=True)

    def loss(y, batch, dtype):
        return (F.cross_entropy(y.logits.flatten(0, 1), tokens(batch, 29, "labels").flatten())
                + config.router_aux_loss_coef * y.aux_loss)

    record(name, make, out, loss, adamw(1e-3), **options)


def t5(name, untied=False, **config):
    import transformers

    def untie(m):
        if untied:
            m.lm_head.weight = torch.nn.Parameter(weight("lm_head.weight", (29, 16)).to(m.dtype))
        return m

    make, options = transformers_model(transformers.T5ForConditionalGeneration, transformers.T5Config(
        vocab_size=29, d_model=16, d_kv=6, d_ff=20, num_layers=2, num_decoder_layers=3, num_heads=3, dropout_rate=0,
        relative_attention_num_buckets=8, relative_attention_max_distance=10, decoder_start_token_id=0,
        tie_word_embeddings=not untied, **config), untie)
    if untied:
        # Transformers 5 always ties the embeddings when it creates a model, but not if files contain both.
        options["state"] = sorted([*options["state"], ("lm_head.weight", [29, 16])])
        options["more"]["config"]["tie_word_embeddings"] = False

    def out(m, batch, dtype):
        mask = torch.ones(2, 9, dtype=torch.long)
        mask[1, 6:] = 0
        return m(input_ids=tokens(batch, 29, length=9), attention_mask=mask,
                 labels=tokens(batch, 29, "labels", 7)).logits

    record(name, make, out,
           lambda y, batch, dtype: F.cross_entropy(y.flatten(0, 1), tokens(batch, 29, "labels", 7).flatten()),
           adamw(1e-3), **options)


@model
def t5_relu(name):
    t5(name)


@model
def t5_gated(name):
    t5(name, untied=True, feed_forward_proj="gated-gelu")


# --- networks of convolutions


@model
def unet(name):
    import diffusers

    def make(dtype):
        return fill(diffusers.UNet2DModel(
            sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16),
            down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=4, norm_num_groups=4, num_class_embeds=5).to(dtype))

    def noise(batch, dtype):
        return (uniform((4, 3, 8, 8), f"noise{batch}") * 3).to(dtype)

    def out(m, batch, dtype):
        # Diffusion: a part of the signal is noise, which depends on the time, and the model predicts the noise.
        times = integers((4,), f"times{batch}", 1000)
        signal = ((1000 - times) / 1000).to(dtype)[:, None, None, None]
        noisy = signal.sqrt() * images(8, batch, dtype) + (1 - signal).sqrt() * noise(batch, dtype)
        return m(noisy, times, integers((4,), f"classes{batch}", 5)).sample

    record(name, make, out, lambda y, batch, dtype: F.mse_loss(y, noise(batch, dtype)), adamw(1e-3))


@model
def vgg(name):
    import torchvision

    def make():
        features = torchvision.models.vgg.make_layers([8, "M", 12, 12, "M"])
        return small_vgg(torchvision.models.VGG(features, num_classes=10, dropout=0))
    classifier(name, make, 8, sgd(1e-2))


@model
def vgg_bn(name):
    import torchvision

    def make():
        features = torchvision.models.vgg.make_layers([8, "M", 12, 12, "M"], batch_norm=True)
        return small_vgg(torchvision.models.VGG(features, num_classes=10, dropout=0))
    classifier(name, make, 8, sgd(1e-2))


def small_vgg(m):
    m.classifier[0] = torch.nn.Linear(12 * 7 * 7, 20)
    m.classifier[3] = torch.nn.Linear(20, 20)
    m.classifier[6] = torch.nn.Linear(20, 10)
    return m


@model
def mobilenet(name):
    from functools import partial
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
    block = partial(InvertedResidualConfig, width_mult=1.0)
    classifier(name, lambda: MobileNetV3([
        block(8, 3, 8, 8, True, "RE", 2, 1),
        block(8, 3, 24, 16, False, "RE", 2, 1),
        block(16, 5, 32, 16, True, "HS", 1, 1),
    ], 20, num_classes=10, dropout=0), 32, sgd(1e-3))


@model
def efficientnet(name):
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig
    classifier(name, lambda: EfficientNet([
        MBConvConfig(1, 3, 1, 8, 8, 1),
        MBConvConfig(4, 3, 2, 8, 16, 2),
        MBConvConfig(4, 5, 2, 16, 16, 2),
    ], dropout=0, stochastic_depth_prob=0, num_classes=10), 32, sgd(1e-3))


@model
def torchvision_states(name):
    """Records only names and shapes of models of full size."""
    import torchvision
    names = ["resnet101", "resnet152", "vgg11", "vgg16_bn", "vgg19", "mobilenet_v3_small", "mobilenet_v3_large",
             "efficientnet_b0"]
    with torch.device("meta"):
        states = {n: [[k, list(t.shape)] for k, t in getattr(torchvision.models, n)().state_dict().items()]
                  for n in names}
    text = json.dumps(states, separators=(",", ":")) + "\n"
    (HERE / "networks" / f"{name}.json").write_text(text)


def main():
    for name in sys.argv[1:] or MODELS:
        MODELS[name]()


if __name__ == "__main__":
    main()
