"""Records programs with models of their own, which tests/nn/models/programs_test.cpp defines too."""

import json

import torch
import torch.nn.functional as F

from network_recording import HERE, STEPS, adamw, fill, images, integers, model, record, sgd, tokens, uniform


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
