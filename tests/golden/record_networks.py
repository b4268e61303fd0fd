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

import contextlib
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
STEPS = 20
MODELS = {}


def uniform(shape, name):
    """Returns multiples of 2^-24 in [-0.5, 0.5)."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        h = i * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(31)
        h *= np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(29)
    return torch.tensor((h >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5).reshape(shape)


def weight(name, shape):
    """Returns the initial value of a parameter: vectors near 1 (weights) or 0 (biases), and others with variance
    1 / fan_in."""
    if len(shape) < 2:
        return uniform(shape, name) * 0.25 + (1 if name.endswith("weight") else 0)
    return uniform(shape, name) * np.sqrt(12 / np.prod(shape[1:]))


def integers(shape, name, count):
    return ((uniform(shape, name) + 0.5) * count).long()


def fill(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weight(name, p.shape))
    return model


@contextlib.contextmanager
def in_double():
    """Replaces conversions to float32, which models of Transformers contain, by conversions to float64."""
    to, to_float, softmax, arange = torch.Tensor.to, torch.Tensor.float, F.softmax, torch.arange

    def wider(value):
        return torch.float64 if value is torch.float32 else value

    def new_to(self, *args, **kwargs):
        return to(self, *map(wider, args), **{k: wider(v) for k, v in kwargs.items()})

    torch.Tensor.to = new_to
    torch.Tensor.float = torch.Tensor.double
    F.softmax = lambda *args, **kwargs: softmax(*args, **{k: wider(v) for k, v in kwargs.items()})
    torch.arange = lambda *args, **kwargs: arange(*args, **{k: wider(v) for k, v in kwargs.items()})
    torch.set_default_dtype(torch.float64)
    yield
    torch.Tensor.to, torch.Tensor.float, F.softmax, torch.arange = to, to_float, softmax, arange
    torch.set_default_dtype(torch.float32)


def scopes(dtype):
    return in_double() if dtype == torch.float64 else contextlib.nullcontext()


def record(name, make, out, loss, optimizer, steps=STEPS, f32_steps=None, state=None, more=None):
    """Records a model.

    make(dtype) returns a filled model, out(model, batch, dtype) its output, and
    loss(output, batch, dtype) the loss.
    """
    result = {"state": state, **(more or {})}
    for dtype in (torch.float64, torch.float32):
        with scopes(dtype):
            model = make(dtype).train()
            if dtype == torch.float64 and state is None:
                result["state"] = [[k, list(t.shape)] for k, t in model.state_dict().items()]
            own = optimizer(model.parameters())
            losses = []
            for step in range(steps if dtype == torch.float64 else f32_steps or steps):
                y = out(model, step % 2, dtype)
                value = loss(y, step % 2, dtype)
                value.backward()
                if dtype == torch.float64 and step == 0:
                    result["out"] = getattr(y, "logits", y).detach().flatten().tolist()
                    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
                    result["gradient"] = torch.stack(norms).norm().item()
                own.step()
                own.zero_grad()
                losses.append(value.item())
            result["f64" if dtype == torch.float64 else "f32"] = losses
            if dtype == torch.float64:
                model.eval()
                with torch.no_grad():
                    result["eval"] = loss(out(model, 0, dtype), 0, dtype).item()
    text = json.dumps(result, separators=(",", ":")) + "\n"
    (HERE / "networks" / f"{name}.json").write_text(text)
    print(name, result["f64"][0], result["f64"][-1], abs(result["f64"][-1] - result["f32"][-1])
          if len(result["f32"]) == len(result["f64"]) else "", len(text))


def sgd(lr):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def adamw(lr):
    return lambda parameters: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.1)


def model(function):
    MODELS[function.__name__] = lambda: function(function.__name__)
    return function


def images(size, batch, dtype, count=4):
    return (uniform((count, 3, size, size), f"images{batch}") * 4).to(dtype)


def classifier(name, make, size, optimizer, classes=10, **options):
    """Records a model that classifies images."""
    record(name, lambda dtype: fill(make().to(dtype)),
           lambda m, batch, dtype: m(images(size, batch, dtype)),
           lambda y, batch, dtype: F.cross_entropy(y, integers((4,), f"labels{batch}", classes)),
           optimizer, **options)


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


def tokens(batch, count, name="tokens", length=12):
    return integers((2, length), f"{name}{batch}", count)


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


# --- programs with models of their own, which tests/nn/models/programs_test.cpp defines too


class LstmLanguageModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(29, 12)
        self.lstm = torch.nn.LSTM(12, 16, num_layers=2, batch_first=True)
        self.decoder = torch.nn.Linear(16, 29)

    def forward(self, ids):
        return self.decoder(self.lstm(self.embedding(ids))[0])


@model
def lstm_language_model(name):
    record(name, lambda dtype: fill(LstmLanguageModel().to(dtype)), lambda m, batch, dtype: m(tokens(batch, 29)),
           lambda y, batch, dtype: F.cross_entropy(y.flatten(0, 1), tokens(batch, 29, "labels").flatten()),
           sgd(0.5))


class Translator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.source = torch.nn.Embedding(29, 16)
        self.target = torch.nn.Embedding(29, 16)
        self.positions = torch.nn.Parameter(torch.zeros(12, 16))
        self.transformer = torch.nn.Transformer(16, 2, 2, 1, 24, dropout=0, batch_first=True)
        self.generator = torch.nn.Linear(16, 29)

    def forward(self, source, target, padding):
        x = self.source(source) + self.positions[:source.shape[1]]
        y = self.target(target) + self.positions[:target.shape[1]]
        mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        return self.generator(self.transformer(x, y, tgt_mask=mask, src_key_padding_mask=padding,
                                               memory_key_padding_mask=padding))


@model
def translator(name):
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 6:] = True
    record(name, lambda dtype: fill(Translator().to(dtype)),
           lambda m, batch, dtype: m(tokens(batch, 29, length=9), tokens(batch, 29, "target", 7), padding),
           lambda y, batch, dtype: F.cross_entropy(y.flatten(0, 1), tokens(batch, 29, "labels", 7).flatten(),
                                                   label_smoothing=0.1), adamw(3e-3))


class Vae(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(192, 20)
        self.mean = torch.nn.Linear(20, 6)
        self.log_variance = torch.nn.Linear(20, 6)
        self.hidden = torch.nn.Linear(6, 20)
        self.decoder = torch.nn.Linear(20, 192)

    def forward(self, x, noise):
        hidden = F.relu(self.encoder(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + noise * (log_variance / 2).exp()
        return torch.cat([self.decoder(F.relu(self.hidden(z))), mean, log_variance], 1)


@model
def vae(name):
    def pixels(batch, dtype):
        return (uniform((4, 192), f"images{batch}") + 0.5).to(dtype)

    def loss(y, batch, dtype):
        logits, mean, log_variance = y.split([192, 6, 6], 1)
        error = F.binary_cross_entropy_with_logits(logits, pixels(batch, dtype), reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()
        return (error + divergence) / 4

    record(name, lambda dtype: fill(Vae().to(dtype)),
           lambda m, batch, dtype: m(pixels(batch, dtype), (uniform((4, 6), f"noise{batch}") * 3).to(dtype)),
           loss, adamw(3e-3))


class ActorCritic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 16)
        self.policy = torch.nn.Linear(16, 3)
        self.value = torch.nn.Linear(16, 1)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return torch.cat([self.policy(hidden), self.value(hidden)], -1)


@model
def actor_critic(name):
    def loss(y, batch, dtype):
        rewards = uniform((8,), f"rewards{batch}").tolist()
        returns = [0.0] * 9
        for t in reversed(range(8)):
            returns[t] = rewards[t] + 0.9 * returns[t + 1]
        returns = torch.tensor(returns[:8], dtype=torch.float64).to(dtype)
        policy = torch.distributions.Categorical(logits=y[:, :3])
        advantage = returns - y[:, 3].detach()
        actions = integers((8,), f"actions{batch}", 3)
        return (-(policy.log_prob(actions) * advantage).mean() + 0.5 * F.smooth_l1_loss(y[:, 3], returns)
                - 0.01 * policy.entropy().mean())

    record(name, lambda dtype: fill(ActorCritic().to(dtype)),
           lambda m, batch, dtype: m((uniform((8, 4), f"states{batch}") * 2).to(dtype)), loss, adamw(1e-2))


class Generator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False)

    def forward(self, z):
        return torch.tanh(self.conv2(F.relu(self.norm1(self.conv1(z[:, :, None, None])))))


class Discriminator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 4, 2, 1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 1, 4, 1, 0, bias=False)

    def forward(self, x):
        return self.conv2(F.leaky_relu(self.norm1(self.conv1(x)), 0.2)).flatten()


@model
def dcgan(name):
    """Records the losses of the discriminator and of the generator, which alternate."""
    result = {}
    for key, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        generator, discriminator = fill(Generator().to(dtype)), fill(Discriminator().to(dtype))
        adams = [torch.optim.Adam(m.parameters(), lr=2e-3, betas=(0.5, 0.999)) for m in (generator, discriminator)]
        losses = []
        for step in range(STEPS):
            fake = generator((uniform((4, 6), f"noise{step % 2}") * 3).to(dtype))
            real = images(8, step % 2, dtype) / 2
            ones, zeros = torch.ones(4, dtype=dtype), torch.zeros(4, dtype=dtype)
            discriminator.zero_grad()
            loss = (F.binary_cross_entropy_with_logits(discriminator(real), ones)
                    + F.binary_cross_entropy_with_logits(discriminator(fake.detach()), zeros))
            loss.backward()
            adams[1].step()
            losses.append(loss.item())
            generator.zero_grad()
            loss = F.binary_cross_entropy_with_logits(discriminator(fake), ones)
            loss.backward()
            adams[0].step()
            losses.append(loss.item())
        result[key] = losses
    print(name, result["f64"][0], result["f64"][-1], abs(result["f64"][-1] - result["f32"][-1]))
    (HERE / "networks" / f"{name}.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")


def main():
    for name in sys.argv[1:] or MODELS:
        MODELS[name]()


if __name__ == "__main__":
    main()
