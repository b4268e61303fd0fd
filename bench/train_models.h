// The models of bench_train_step and their training steps. bench/peers/train_step.py has the same
// models in PyTorch.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/hashed.h"
#include "bench/serve.h"
#include "core/autograd/autocast.h"
#include "core/ops.h"
#include "dist/parallel/data_parallel.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "dist/sharding/wrap_policy.h"
#include "nn/layers/mlp.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/lenet.h"
#include "nn/models/llama.h"
#include "nn/models/resnet.h"
#include "nn/models/vision/vit.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/sgd.h"

namespace axle::bench {

struct Options {
    std::string model = "char-gpt";
    int threads = 2;
    int steps = 50;
    std::string dtype = "f32";
    std::optional<dist::ShardingStrategy> sharding;
    std::shared_ptr<dist::ProcessGroup> group = nullptr;
    bool turns = false;  // whether the steps are measured again for each line of the input
    // Options of --serve:
    bool served = false, deterministic = false;
    ServeOptions serve;
    std::int64_t batch = 0, time = 0;  // batch size and tokens per sequence; 0: the model's default

    std::optional<DType> autocast() const {
        if (dtype == "bf16") return bf16;
        return std::nullopt;
    }
};

// A training step, with the number of its tokens (for a language model) or samples, and of the
// model's parameters.
struct Training {
    std::function<Tensor()> step;
    std::int64_t items = 0, parameters = 0;
};

// Distributes a model over the processes. Returns the object that averages the model's gradients or
// shards the model, or null if the job has one process and does not shard.
inline std::shared_ptr<void> distribute(const Options& options, nn::Module& model) {
    if (options.sharding)
        return std::make_shared<dist::ShardedDataParallel>(
            model, options.group,
            dist::ShardingOptions{.strategy = *options.sharding,
                                  .units = dist::units_by_type(model, {"GptBlock"}),
                                  .precision = {.param_dtype = options.autocast()}});
    if (options.group->size() == 1) return nullptr;
    return std::make_shared<dist::DataParallel>(model, options.group);
}

// A batch, and the number of its items.
struct Batch {
    Tensor x, y;
    std::int64_t items = 0;
};

// Returns the training of a model. loss_of(model, x, y) returns the mean loss of a batch, and
// make_optimizer(parameters) a shared pointer to the optimizer. Gradients are clipped to max_norm
// unless it is 0.
template <class Model, class LossOf, class MakeOptimizer>
Training training_with(const Options& options, Model model, const Batch& batch, double max_norm,
                       LossOf loss_of, MakeOptimizer make_optimizer) {
    const auto shared = std::make_shared<Model>(std::move(model));
    const std::int64_t parameters = shared->num_parameters();
    const std::vector<Tensor> params = shared->parameters();
    const std::shared_ptr<void> distributed = distribute(options, *shared);
    const auto optimizer = make_optimizer(params);
    const auto autocast = options.autocast();
    const auto step = [=] {
        (void)distributed;  // lives as long as the step
        const Tensor loss = [&] {
            const AutocastGuard scope(autocast);
            return loss_of(*shared, batch.x, batch.y);
        }();
        loss.backward();
        if (max_norm > 0) optim::clip_grad_norm_(params, max_norm);
        optimizer->step();
        optimizer->zero_grad();
        return loss;
    };
    return {step, batch.items, parameters};
}

// Returns a function that creates an AdamW optimizer.
inline auto adamw_with(const optim::AdamWOptions& options) {
    return [options](const std::vector<Tensor>& parameters) {
        return std::make_shared<optim::AdamW>(parameters, options);
    };
}

// Returns random images [batch, ...] with labels less than `classes`.
inline Batch random_images(const Shape& images, std::int64_t classes) {
    return {randn(images), randint(0, classes, {images[0]}), images[0]};
}

template <class Model>
Tensor classifier_loss(Model& model, const Tensor& x, const Tensor& y) {
    return cross_entropy(model(x), y);
}

// Returns the training of a classifier with SGD.
template <class Model>
Training classifier_training(const Options& options, Model model, const Batch& batch) {
    return training_with(options, std::move(model), batch, 0, classifier_loss<Model>,
                         [](const std::vector<Tensor>& parameters) {
                             return std::make_shared<optim::SGD>(parameters,
                                                                 optim::SGDOptions{.lr = 0.01});
                         });
}

inline void set_hashed_gpt_weights(nn::Gpt& model) {
    set_hashed_weights(model, [&](const std::string& name, const Tensor&) {
        const double layers = static_cast<double>(model.config.n_layer);
        const double bound = 0.02 * std::sqrt(3.0);
        return name.ends_with("c_proj.weight") ? bound / std::sqrt(2 * layers) : bound;
    });
}

// The learning rate of runs whose losses are compared between engines: small, so that rounding
// errors do not grow from step to step.
inline constexpr double kComparedRate = 1e-4;

// Returns the training of a language model with AdamW and gradient clipping.
template <class Model>
Training language_training(const Options& options, Model model, const Batch& batch) {
    return training_with(
        options, std::move(model), batch, 1.0,
        [](Model& m, const Tensor& x, const Tensor& y) { return m.loss(x, y); },
        adamw_with({.lr = options.sharding ? kComparedRate : 1e-3,
                    .betas = {0.9, 0.99},
                    .weight_decay = 0.1}));
}

inline Batch random_tokens(const Shape& shape, std::int64_t vocab) {
    return {randint(0, vocab, shape), randint(0, vocab, shape), shape[0] * shape[1]};
}

inline Training gpt_training(const Options& options, const nn::GptConfig& config,
                             const Shape& shape) {
    nn::Gpt model(config);
    Batch batch = random_tokens(shape, config.vocab_size);
    if (options.sharding) {
        set_hashed_gpt_weights(model);
        const auto key = kDataKey + 2 * static_cast<std::uint32_t>(options.group->rank());
        batch.x = hashed_ids(key, shape, config.vocab_size);
        batch.y = hashed_ids(key + 1, shape, config.vocab_size);
    }
    return language_training(options, std::move(model), batch);
}

// A Llama with grouped queries, of which two heads share a key-value head.
inline Training llama_training(const Options& options) {
    const nn::LlamaConfig config{.vocab_size = 8192,
                                 .hidden_size = 512,
                                 .intermediate_size = 1376,
                                 .num_hidden_layers = 8,
                                 .num_attention_heads = 8,
                                 .num_key_value_heads = 4};
    return language_training(options, nn::Llama(config),
                             random_tokens({2, 256}, config.vocab_size));
}

// Fine-tunes a BERT-base to classify sequences of 128 tokens into two classes, without dropout.
inline Training bert_training(const Options& options) {
    const nn::BertConfig config{.hidden_dropout_prob = 0, .attention_probs_dropout_prob = 0};
    using Model = nn::BertForSequenceClassification;
    return training_with(
        options, Model(config), {randint(0, config.vocab_size, {8, 128}), randint(0, 2, {8}), 8}, 0,
        [](Model& m, const Tensor& x, const Tensor& y) { return m.loss(x, y); },
        adamw_with({.lr = 2e-5, .weight_decay = 0.01}));
}

// A ViT-Tiny.
inline Training vit_training(const Options& options) {
    nn::VisionTransformer model(
        {.num_layers = 12, .num_heads = 3, .hidden_dim = 192, .mlp_dim = 768});
    return training_with(options, std::move(model), random_images({8, 3, 224, 224}, 1000), 0,
                         classifier_loss<nn::VisionTransformer>,
                         adamw_with({.lr = 1e-3, .weight_decay = 0.05}));
}

inline nn::ResNetConfig small_resnet18() {
    nn::ResNetConfig config = nn::resnet18();
    config.num_classes = 10;
    config.small_images = true;
    return config;
}

inline nn::GptConfig char_gpt() {
    return {.vocab_size = 65,
            .block_size = 64,
            .n_layer = 4,
            .n_head = 4,
            .n_embd = 128,
            .bias = false,
            .activation = Gelu::erf};
}

// Returns the training of the model that options.model names. Throws std::invalid_argument for
// another name.
inline Training training_of(const Options& options) {
    const std::string& name = options.model;
    if (name == "mlp")
        return classifier_training(options, nn::Mlp({784, 512, 512, 10}),
                                   random_images({128, 784}, 10));
    if (name == "tiny-mlp")
        return classifier_training(options, nn::Mlp({64, 64, 10}), random_images({8, 64}, 10));
    if (name == "lenet")
        return classifier_training(options, nn::LeNet(), random_images({64, 1, 28, 28}, 10));
    if (name == "resnet18")
        return classifier_training(options, nn::ResNet(small_resnet18()),
                                   random_images({32, 3, 32, 32}, 10));
    if (name == "resnet50")
        return classifier_training(options, nn::ResNet(nn::resnet50()),
                                   random_images({16, 3, 64, 64}, 1000));
    if (name == "vit-tiny") return vit_training(options);
    if (name == "char-gpt") return gpt_training(options, char_gpt(), {12, 64});
    if (name == "gpt2") return gpt_training(options, {}, {4, 64});
    if (name == "gpt2-1024") return gpt_training(options, {}, {1, 1024});
    if (name == "llama") return llama_training(options);
    if (name == "bert-base") return bert_training(options);
    throw std::invalid_argument(
        "bench_train_step: --model must be mlp, tiny-mlp, lenet, resnet18, resnet50, vit-tiny, "
        "char-gpt, gpt2, gpt2-1024, llama or bert-base: " +
        name);
}

}  // namespace axle::bench
