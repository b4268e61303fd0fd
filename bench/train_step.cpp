// Usage:
//     bench_train_step --model NAME [--threads N] [--steps N] [--dtype f32|bf16]
//         [--sharding full_shard|shard_grad_op|shard_optimizer] [--turns]
//     bench_train_step --serve --model NAME [--device cuda|cpu] [--dtype f32|bf16] [--compile]
//         [--deterministic] [--batch N] [--time N]
//
// Measures training steps: forward, backward, gradient clipping (of a GPT or Llama) and the
// optimizer's update, on one batch of random numbers. bench/train_models.h has the names of models.
// Prints one line of JSON with the median time of a step and the peak memory. With --turns,
// measures again for each line of the standard input, until the line is "quit".
// bench/peers/train_step.py runs the same steps in PyTorch, and bench/peers/compare runs the two
// programs in turn. Processes that axle launch has started average their gradients, and rank 0
// prints. With --sharding, the processes of a GPT shard its parameters, with one unit for each
// block. Weights and data are then hashes (bench/hashed.h), each process has its own data, and the
// line has the losses of the first steps, which bench/peers/compare compares. Without --sharding,
// the line has only the first loss.
//
// With --serve, the program is a worker of bench/peers/compare_gpu and replies to requests
// (bench/serve.h). f32 products may round their operands to TF32. Further models are gpt2-124m,
// gpt2-350m, gpt2-774m and gpt2-1558m, with 1024 tokens per sequence and a vocabulary of 50304.
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/serve.h"
#include "bench/time_steps.h"
#include "bench/train_models.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/system/numerics.h"
#include "kernels/thread_pool.h"
#include "nn/layers/mlp.h"
#include "nn/models/gpt.h"
#include "nn/models/lenet.h"
#include "nn/models/resnet.h"
#include "optim/adam.h"
#include "optim/sgd.h"

namespace axle::bench {
namespace {

// --- worker

template <class Model>
void serve_classifier(const Options& options, Model model, Shape images) {
    if (options.batch > 0) images[0] = options.batch;
    set_hashed_weights(model, fan_in_bound);
    optim::SGD optimizer(model.parameters(), {.lr = 0.01});
    const Tree batch{{"x", hashed_floats(kDataKey, images, 1.7)},
                     {"y", hashed_ids(kDataKey + 1, {images[0]}, 10)}};
    serve(options.serve, model, optimizer, batch, 0,
          [](Model& m, Tree& b) { return cross_entropy(m(b["x"]), b["y"]); });
}

void serve_gpt(const Options& options, const nn::GptConfig& config, std::int64_t batch,
               std::int64_t time) {
    nn::Gpt model(config);
    set_hashed_gpt_weights(model);
    optim::AdamW optimizer(model.parameters(),
                           {.lr = kComparedRate, .betas = {0.9, 0.99}, .weight_decay = 0.1});
    const Shape shape = {options.batch > 0 ? options.batch : batch,
                         options.time > 0 ? options.time : time};
    const Tree data{{"x", hashed_ids(kDataKey, shape, config.vocab_size)},
                    {"y", hashed_ids(kDataKey + 1, shape, config.vocab_size)}};
    serve(options.serve, model, optimizer, data, 1.0,
          [](nn::Gpt& m, Tree& b) { return m.loss(b["x"], b["y"]); });
}

void serve_model(const Options& options) {
    const auto gpt2 = [&](std::int64_t layers, std::int64_t heads, std::int64_t width) {
        serve_gpt(options,
                  {.vocab_size = 50304, .n_layer = layers, .n_head = heads, .n_embd = width}, 4,
                  1024);
    };
    const std::string& name = options.model;
    if (name == "mlp") return serve_classifier(options, nn::Mlp({784, 512, 512, 10}), {128, 784});
    if (name == "tiny-mlp") return serve_classifier(options, nn::Mlp({64, 64, 10}), {8, 64});
    if (name == "lenet") return serve_classifier(options, nn::LeNet(), {64, 1, 28, 28});
    if (name == "resnet18")
        return serve_classifier(options, nn::ResNet(small_resnet18()), {32, 3, 32, 32});
    if (name == "char-gpt") return serve_gpt(options, char_gpt(), 12, 64);
    if (name == "gpt2") return serve_gpt(options, {}, 4, 64);
    if (name == "gpt2-124m") return gpt2(12, 12, 768);
    if (name == "gpt2-350m") return gpt2(24, 16, 1024);
    if (name == "gpt2-774m") return gpt2(36, 20, 1280);
    if (name == "gpt2-1558m") return gpt2(48, 25, 1600);
    throw std::invalid_argument(
        "bench_train_step: --model must be mlp, tiny-mlp, lenet, resnet18, char-gpt, gpt2, "
        "gpt2-124m, gpt2-350m, "
        "gpt2-774m or gpt2-1558m: " +
        name);
}

void run_server(Options options) {
    kernels::set_num_threads(options.threads);
    set_float32_matmul_precision(MatmulPrecision::high);
    use_deterministic_algorithms(options.deterministic);
    options.serve.engine = options.serve.compile ? "axle.compile" : "axle";
    options.serve.dtype = options.dtype;
    try {
        serve_model(options);
    } catch (const std::exception& error) {
        reply({{"error", error.what()}});
        throw;
    }
}

// --- options, and the measurement

dist::ShardingStrategy strategy_named(const std::string& name) {
    for (const auto strategy :
         {dist::ShardingStrategy::full_shard, dist::ShardingStrategy::shard_grad_op,
          dist::ShardingStrategy::shard_optimizer})
        if (name == name_of(strategy)) return strategy;
    throw std::invalid_argument(
        "bench_train_step: --sharding must be full_shard, shard_grad_op or shard_optimizer: " +
        name);
}

Options parse(const std::vector<std::string>& arguments) {
    Options options;
    for (std::size_t i = 0; i < arguments.size(); i += 2) {
        const std::string& name = arguments[i];
        bool* const flag = name == "--serve"           ? &options.served
                           : name == "--turns"         ? &options.turns
                           : name == "--compile"       ? &options.serve.compile
                           : name == "--deterministic" ? &options.deterministic
                                                       : nullptr;
        if (flag != nullptr) {
            *flag = true;
            --i;
            continue;
        }
        if (i + 1 == arguments.size())
            throw std::invalid_argument("bench_train_step: " + name + " needs a value");
        const std::string& value = arguments[i + 1];
        if (name == "--model")
            options.model = value;
        else if (name == "--threads")
            options.threads = std::stoi(value);
        else if (name == "--steps")
            options.steps = std::stoi(value);
        else if (name == "--dtype")
            options.dtype = value;
        else if (name == "--sharding")
            options.sharding = strategy_named(value);
        else if (name == "--device")
            options.serve.device = value;
        else if (name == "--batch")
            options.batch = std::stoll(value);
        else if (name == "--time")
            options.time = std::stoll(value);
        else
            throw std::invalid_argument(
                "bench_train_step: the option must be --serve, --turns, --compile, "
                "--deterministic, --model, --threads, --steps, --dtype, --sharding, --device, "
                "--batch or --time: " +
                name);
    }
    if (options.dtype != "f32" && options.dtype != "bf16")
        throw std::invalid_argument("bench_train_step: --dtype must be f32 or bf16: " +
                                    options.dtype);
    if (options.steps < 1)
        throw std::invalid_argument("bench_train_step: --steps must be positive: " +
                                    std::to_string(options.steps));
    return options;
}

// Measures the steps and prints the results on rank 0.
void measure(Options options) {
    options.group = dist::ProcessGroup::create();
    if (options.turns && options.group->size() > 1)
        throw std::invalid_argument("bench_train_step: --turns needs a job with one process");
    kernels::set_num_threads(options.threads);
    manual_seed(1);
    const Training training = training_of(options);
    const double tokens = static_cast<double>(training.items * options.group->size());
    StepTimer timer(training.step, options.sharding ? 5 : 1, options.steps);
    const auto report = [&] {
        nlohmann::json row = timer.measure();
        row.update({{"model", options.model},
                    {"dtype", options.dtype},
                    {"parameters", training.parameters},
                    {"threads", options.threads},
                    {"processes", options.group->size()},
                    {"tokens_per_s", 1e3 * tokens / row["ms_per_step"].get<double>()}});
        if (options.group->rank() == 0) std::cout << row.dump() << std::endl;
    };
    report();
    if (!options.turns) return;
    for (std::string line; std::getline(std::cin, line) && line != "quit";) {
        timer.warm_up();
        report();
    }
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    try {
        const auto options = axle::bench::parse({argv + 1, argv + argc});
        if (options.served)
            axle::bench::run_server(options);
        else
            axle::bench::measure(options);
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
