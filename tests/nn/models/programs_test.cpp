// Compares the training of small programs with PyTorch (tests/golden/record_networks.py). Each
// program has its own model: a language model, a translator, a variational autoencoder, an actor
// with a critic, and a generative adversarial network.
#include "core/losses.h"
#include "nn/layers/conv.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/layers/recurrent/recurrent.h"
#include "nn/layers/transformer/transformer.h"
#include "tests/nn/models/network.h"

namespace axle {
namespace {

using tests::adamw;
using tests::integers;
using tests::uniform_of;

// Compares the names, shapes and training of a program with the recorded values in f64 and in f32.
// out(model, batch, dtype) returns the output for a batch, and loss(output, batch) returns the
// loss.
template <class Model, class Out, class Loss>
void expect_recorded_program(const std::string& name, const tests::MakeOptimizer& optimizer,
                             Out&& out, Loss&& loss) {
    tests::expect_recorded_state(name, Model().state_dict());
    for (const DType dtype : {f64, f32}) {
        Model model;
        tests::expect_recorded_training(
            name, model, dtype, optimizer,
            [&](std::int64_t batch) { return out(model, batch, dtype); }, loss);
    }
}

struct LstmLanguageModel : nn::Model<LstmLanguageModel> {
    Tensor forward(const Tensor& ids) { return decoder(lstm(embedding(ids)).first); }
    void visit(nn::Visitor& v) override {
        v("embedding", embedding), v("lstm", lstm), v("decoder", decoder);
    }

    nn::Embedding embedding{29, 12};
    nn::LSTM lstm{12, 16, {.num_layers = 2, .batch_first = true}};
    nn::Linear decoder{16, 29};
};

TEST(LSTM, TrainsALanguageModelLikePyTorch) {
    expect_recorded_program<LstmLanguageModel>(
        "lstm_language_model", tests::sgd(0.5),
        [](LstmLanguageModel& model, std::int64_t batch, DType) {
            return model(integers({2, 12}, str("tokens", batch), 29));
        },
        [](const Tensor& y, std::int64_t batch) {
            return cross_entropy(y.flatten(0, 1),
                                 integers({2, 12}, str("labels", batch), 29).flatten());
        });
}

struct Translator : nn::Model<Translator> {
    Tensor forward(const Tensor& from, const Tensor& to, const Tensor& padding) {
        const auto placed = [&](const Tensor& x) { return x + positions.narrow(0, 0, x.size(1)); };
        return generator(transformer(placed(source(from)), placed(target(to)),
                                     {.src_key_padding_mask = padding,
                                      .memory_key_padding_mask = padding,
                                      .tgt_is_causal = true}));
    }
    void visit(nn::Visitor& v) override {
        v("source", source), v("target", target), v("positions", positions);
        v("transformer", transformer), v("generator", generator);
    }

    nn::Embedding source{29, 16}, target{29, 16};
    Tensor positions = zeros({12, 16}, {.requires_grad = true});
    nn::Transformer transformer{{.d_model = 16,
                                 .nhead = 2,
                                 .num_encoder_layers = 2,
                                 .num_decoder_layers = 1,
                                 .dim_feedforward = 24,
                                 .dropout = 0,
                                 .batch_first = true}};
    nn::Linear generator{16, 29};
};

TEST(Translator, TrainsLikePyTorch) {
    const Tensor padding = cat({zeros({1, 9}), ge(arange(9), 6).to(f32).unsqueeze(0)}).to(boolean);
    expect_recorded_program<Translator>(
        "translator", adamw(3e-3),
        [&](Translator& model, std::int64_t batch, DType) {
            return model(integers({2, 9}, str("tokens", batch), 29),
                         integers({2, 7}, str("target", batch), 29), padding);
        },
        [](const Tensor& y, std::int64_t batch) {
            return cross_entropy(y.flatten(0, 1),
                                 integers({2, 7}, str("labels", batch), 29).flatten(),
                                 {.label_smoothing = 0.1});
        });
}

struct Vae : nn::Model<Vae> {
    // Returns logits [N, 192], means [N, 6] and logarithms of variances [N, 6], joined.
    Tensor forward(const Tensor& x, const Tensor& noise) {
        const Tensor features = encoder(x, Activation::relu);
        const Tensor m = mean(features), v = log_variance(features);
        const Tensor z = m + noise * exp(v / 2);
        return cat({decoder(hidden(z, Activation::relu)), m, v}, 1);
    }
    void visit(nn::Visitor& v) override {
        v("encoder", encoder), v("mean", mean), v("log_variance", log_variance);
        v("hidden", hidden), v("decoder", decoder);
    }

    nn::Linear encoder{192, 20}, mean{20, 6}, log_variance{20, 6}, hidden{6, 20}, decoder{20, 192};
};

TEST(Vae, TrainsLikePyTorch) {
    const auto pixels = [](std::int64_t batch, DType dtype) {
        return (uniform_of({4, 192}, str("images", batch)) + 0.5).to(dtype);
    };
    expect_recorded_program<Vae>(
        "vae", adamw(3e-3),
        [&](Vae& model, std::int64_t batch, DType dtype) {
            return model(pixels(batch, dtype),
                         (uniform_of({4, 6}, str("noise", batch)) * 3).to(dtype));
        },
        [&](const Tensor& y, std::int64_t batch) {
            const std::vector<Tensor> parts = split(y, Dims{192, 6, 6}, 1);
            const Tensor error = binary_cross_entropy_with_logits(
                parts[0], pixels(batch, y.dtype()), {.reduction = Reduction::sum});
            const Tensor divergence = sum(1 + parts[2] - parts[1].pow(2) - exp(parts[2])) * -0.5;
            return (error + divergence) / 4;
        });
}

struct ActorCritic : nn::Model<ActorCritic> {
    // Returns the logits of three actions and the value of each state: [N, 4].
    Tensor forward(const Tensor& states) {
        const Tensor hidden = tanh(body(states));
        return cat({policy(hidden), value(hidden)}, -1);
    }
    void visit(nn::Visitor& v) override { v("body", body), v("policy", policy), v("value", value); }

    nn::Linear body{4, 16}, policy{16, 3}, value{16, 1};
};

TEST(ActorCritic, TrainsLikePyTorch) {
    expect_recorded_program<ActorCritic>(
        "actor_critic", adamw(1e-2),
        [](ActorCritic& model, std::int64_t batch, DType dtype) {
            return model((uniform_of({8, 4}, str("states", batch)) * 2).to(dtype));
        },
        [](const Tensor& y, std::int64_t batch) {
            std::vector<double> returns = uniform_of({8}, str("rewards", batch)).to_vector();
            for (std::size_t t = 7; t-- > 0;) returns[t] += 0.9 * returns[t + 1];
            const Tensor expected = tensor(returns, {.dtype = f64}).to(y.dtype());
            const Tensor values = y.select(1, 3), log_policy = log_softmax(y.narrow(1, 0, 3));
            const Tensor actions = integers({8}, str("actions", batch), 3);
            const Tensor chosen = gather(log_policy, 1, actions.unsqueeze(1)).squeeze(1);
            const Tensor entropy = -sum(exp(log_policy) * log_policy, {-1});
            return -mean(chosen * (expected - values.detach())) +
                   0.5 * smooth_l1_loss(values, expected) - 0.01 * mean(entropy);
        });
}

struct Generator : nn::Model<Generator> {
    Tensor forward(const Tensor& z) {
        return tanh(conv2(relu(norm1(conv1(z.unsqueeze(-1).unsqueeze(-1))))));
    }
    void visit(nn::Visitor& v) override { v("conv1", conv1), v("norm1", norm1), v("conv2", conv2); }

    nn::ConvTranspose2d conv1{6, 8, 4, {.bias = false}};
    nn::BatchNorm2d norm1{8};
    nn::ConvTranspose2d conv2{8, 3, 4, {.stride = 2, .padding = 1, .bias = false}};
};

struct Discriminator : nn::Model<Discriminator> {
    Tensor forward(const Tensor& x) { return conv2(leaky_relu(norm1(conv1(x)), 0.2)).flatten(); }
    void visit(nn::Visitor& v) override { v("conv1", conv1), v("norm1", norm1), v("conv2", conv2); }

    nn::Conv2d conv1{3, 8, 4, {.stride = 2, .padding = 1, .bias = false}};
    nn::BatchNorm2d norm1{8};
    nn::Conv2d conv2{8, 1, 4, {.bias = false}};
};

TEST(Dcgan, TrainsLikePyTorch) {
    for (const DType dtype : {f64, f32}) {
        const std::vector<double> losses =
            tests::numbers(tests::recorded_network("dcgan")[dtype == f64 ? "f64" : "f32"]);
        Generator generator;
        Discriminator discriminator;
        generator.to(dtype), discriminator.to(dtype);
        tests::fill(generator), tests::fill(discriminator);
        const optim::AdamOptions options{.lr = 2e-3, .betas = {0.5, 0.999}};
        optim::Adam generator_adam(generator.parameters(), options);
        optim::Adam discriminator_adam(discriminator.parameters(), options);
        const Tensor real_labels = ones({4}, {dtype}), fake_labels = zeros({4}, {dtype});
        const double tolerance = dtype == f64 ? 1e-8 : 1e-4;
        for (std::size_t step = 0; 2 * step < losses.size(); ++step) {
            const Tensor z = (uniform_of({4, 6}, str("noise", step % 2)) * 3).to(dtype);
            const Tensor real = tests::images(8, static_cast<std::int64_t>(step % 2), dtype) / 2;
            const Tensor fake = generator(z);
            discriminator_adam.zero_grad();
            const Tensor discriminator_loss =
                binary_cross_entropy_with_logits(discriminator(real), real_labels) +
                binary_cross_entropy_with_logits(discriminator(fake.detach()), fake_labels);
            discriminator_loss.backward();
            discriminator_adam.step();
            ASSERT_NEAR(discriminator_loss.item(), losses[2 * step], tolerance) << step;
            generator_adam.zero_grad();
            const Tensor generator_loss =
                binary_cross_entropy_with_logits(discriminator(fake), real_labels);
            generator_loss.backward();
            generator_adam.step();
            ASSERT_NEAR(generator_loss.item(), losses[2 * step + 1], tolerance) << step;
        }
    }
}

}  // namespace
}  // namespace axle
