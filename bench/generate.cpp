// Usage: bench_generate [--model gpt2|tinyllama] [--layers N] [--prompt N] [--tokens N] [--batch N]
//     [--same-prompts] [--beams N] [--threads N] [--dtype f32|bf16|f16] [--rounds N]
//
// Measures the generation of text by a model with random weights: GPT-2 with 124M parameters or
// TinyLlama with 1.1B, of which --layers keeps the first layers. The sequences have random prompts,
// or with --same-prompts one common prompt. Prints one line of JSON:
//
//     ms_per_prompt, prompt_tokens_per_s   the time of the call that reads the prompts
//     ms_per_step, new_tokens_per_s        the median over the steps that follow, each of which
//                                          computes one token of each sequence, and the rate
//     ms_per_step_min                      the shortest step
//     read_bytes_per_step                  the bytes of the weights, without the embeddings, of
//                                          which a step reads only rows
//     memory_gbs, share_of_bandwidth       the rate at which the threads read an array in memory,
//                                          and read_bytes_per_step / ms_per_step_min in relation
//                                          to it
//     peak_memory_bytes                    the largest amount of memory that tensors needed
//
// The best of --rounds runs counts. With --beams, steps are not measured one by one: the figures of
// a step are the time of a whole run without its first step, divided by the number of steps.
// bench/peers/generate.py measures the same in Transformers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/time_steps.h"
#include "core/random.h"
#include "kernels/thread_pool.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "tools/axle/bench/machine.h"

namespace axle::bench {
namespace {

struct Options {
    std::string model = "gpt2", dtype = "f32";
    std::int64_t layers = 0;  // 0: all layers of the model
    std::int64_t prompt = 128, tokens = 64, batch = 1, beams = 1;
    bool same_prompts = false;
    int threads = 2, rounds = 3;
};

// A model, and what a step reads of it.
struct Generator {
    std::function<void(const std::vector<nn::TokenIds>&, std::int64_t, const nn::GenerateOptions&)>
        run;
    std::int64_t vocabulary = 0, layers = 0, parameters = 0, read_bytes = 0;
};

DType dtype_named(const std::string& name) {
    if (name == "f32") return f32;
    if (name == "bf16") return bf16;
    if (name == "f16") return f16;
    throw std::invalid_argument("bench_generate: --dtype must be f32, bf16 or f16: " + name);
}

template <class Model>
Generator generator_of(Model model, DType dtype, std::int64_t layers, const Tensor& rows_only) {
    Generator result;
    result.vocabulary = model.config.vocab_size;
    result.layers = layers;
    result.parameters = model.num_parameters();
    model.to(dtype);
    result.read_bytes = (result.parameters - rows_only.numel()) * size_of(dtype);
    result.run = [model = std::move(model)](const std::vector<nn::TokenIds>& prompts,
                                            std::int64_t count,
                                            const nn::GenerateOptions& options) mutable {
        model.generate_batch(prompts, count, options);
    };
    return result;
}

Generator generator_of(const Options& options) {
    const DType dtype = dtype_named(options.dtype);
    const std::int64_t layers = options.layers;
    if (options.model == "gpt2") {
        nn::GptConfig config{.dropout = 0};
        config.n_layer = layers == 0 ? config.n_layer : layers;
        nn::Gpt model(config);
        const Tensor positions = model.transformer.wpe.weight;
        return generator_of(std::move(model), dtype, config.n_layer, positions);
    }
    if (options.model == "tinyllama") {
        const nn::LlamaConfig config{.vocab_size = 32000,
                                     .hidden_size = 2048,
                                     .intermediate_size = 5632,
                                     .num_hidden_layers = layers == 0 ? 22 : layers,
                                     .num_attention_heads = 32,
                                     .num_key_value_heads = 4};
        nn::Llama model(config);
        const Tensor embeddings = model.model.embed_tokens.weight;
        return generator_of(std::move(model), dtype, config.num_hidden_layers, embeddings);
    }
    throw std::invalid_argument("bench_generate: --model must be gpt2 or tinyllama: " +
                                options.model);
}

// Returns the GB/s at which `threads` threads read arrays in memory. They search for a byte that is
// not in the arrays, because the C library does this with the widest vectors of the CPU.
double read_rate(int threads) {
    const std::int64_t per_thread = cold_bytes() / threads / 512 * 512;
    const std::int64_t bytes = per_thread * threads;
    auto* const data = static_cast<char*>(host_memory::allocate(static_cast<std::size_t>(bytes)));
    std::fill_n(data, bytes, '\0');
    std::atomic<int> found = 0;
    const double seconds = best_seconds(12, [&] {
        kernels::parallel(threads, [&](std::int64_t t) {
            const auto size = static_cast<std::size_t>(per_thread);
            if (std::memchr(data + t * per_thread, 1, size) != nullptr) ++found;
        });
    });
    host_memory::deallocate(data, static_cast<std::size_t>(bytes));
    host_memory::empty_cache();
    if (found != 0) throw std::logic_error("bench_generate: an array changed while it was read");
    return 1e-9 * static_cast<double>(bytes) / seconds;
}

double median_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// The times of one run in milliseconds: the call that reads the prompts, and the later steps.
struct Times {
    double prompt = 0;
    std::vector<double> steps;
};

Times time_run(const Generator& generator, const std::vector<nn::TokenIds>& prompts,
               const Options& options) {
    const auto since = [](Clock::time_point start) { return 1e3 * seconds_since(start); };
    Times times;
    Clock::time_point start = Clock::now();
    if (options.beams == 1) {
        const auto note = [&](std::int64_t sequence, std::int64_t) {
            if (sequence != 0) return true;
            const double ms = since(start);
            start = Clock::now();
            if (times.prompt == 0)
                times.prompt = ms;
            else
                times.steps.push_back(ms);
            return true;
        };
        generator.run(prompts, options.tokens, {.temperature = 0, .on_token = note});
        return times;
    }
    generator.run(prompts, 1, {.temperature = 0, .num_beams = options.beams});
    times.prompt = since(start);
    start = Clock::now();
    generator.run(prompts, options.tokens, {.temperature = 0, .num_beams = options.beams});
    times.steps = {(since(start) - times.prompt) / static_cast<double>(options.tokens - 1)};
    return times;
}

nlohmann::json measure(const Options& options) {
    kernels::set_num_threads(options.threads);
    manual_seed(1);
    const double rate = read_rate(options.threads);
    const Generator generator = generator_of(options);
    std::vector<nn::TokenIds> prompts;
    for (std::int64_t i = 0; i < options.batch; ++i) {
        if (options.same_prompts && i > 0) {
            prompts.push_back(prompts.front());
            continue;
        }
        const Tensor ids = randint(0, generator.vocabulary, {options.prompt});
        const auto* const first = ids.data<std::int64_t>();
        prompts.emplace_back(first, first + options.prompt);
    }
    host_memory::reset_peak();
    Times best;
    double step = 0, least = 0;
    for (int round = 0; round < options.rounds; ++round) {
        const Times times = time_run(generator, prompts, options);
        const double median = median_of(times.steps);
        const double minimum = *std::min_element(times.steps.begin(), times.steps.end());
        best.prompt = round == 0 ? times.prompt : std::min(best.prompt, times.prompt);
        step = round == 0 ? median : std::min(step, median);
        least = round == 0 ? minimum : std::min(least, minimum);
    }
    const auto batch = static_cast<double>(options.batch);
    const double achieved = 1e-6 * static_cast<double>(generator.read_bytes) / least;
    return {
        {"engine", "axle"},
        {"model", options.model},
        {"layers", generator.layers},
        {"parameters", generator.parameters},
        {"dtype", options.dtype},
        {"threads", options.threads},
        {"batch", options.batch},
        {"beams", options.beams},
        {"prompt", options.prompt},
        {"tokens", options.tokens},
        {"ms_per_prompt", best.prompt},
        {"prompt_tokens_per_s", 1e3 * batch * static_cast<double>(options.prompt) / best.prompt},
        {"ms_per_step", step},
        {"ms_per_step_min", least},
        {"new_tokens_per_s", 1e3 * batch / step},
        {"read_bytes_per_step", generator.read_bytes},
        {"memory_gbs", rate},
        {"share_of_bandwidth", achieved / rate},
        {"peak_memory_bytes", host_memory::stats().peak},
        {"peak_resident_bytes", peak_resident_bytes()}};
}

Options parse(const std::vector<std::string>& arguments) {
    Options options;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& name = arguments[i];
        if (name == "--same-prompts") {
            options.same_prompts = true;
            continue;
        }
        if (i + 1 == arguments.size())
            throw std::invalid_argument("bench_generate: " + name + " needs a value");
        const std::string& value = arguments[++i];
        if (name == "--model")
            options.model = value;
        else if (name == "--dtype")
            options.dtype = value;
        else if (name == "--layers")
            options.layers = std::stoll(value);
        else if (name == "--prompt")
            options.prompt = std::stoll(value);
        else if (name == "--tokens")
            options.tokens = std::stoll(value);
        else if (name == "--batch")
            options.batch = std::stoll(value);
        else if (name == "--beams")
            options.beams = std::stoll(value);
        else if (name == "--threads")
            options.threads = std::stoi(value);
        else if (name == "--rounds")
            options.rounds = std::stoi(value);
        else
            throw std::invalid_argument(
                "bench_generate: the option must be --model, --layers, --prompt, --tokens, "
                "--batch, --same-prompts, --beams, --threads, --dtype or --rounds: " +
                name);
    }
    if (options.tokens < 2)
        throw std::invalid_argument("bench_generate: --tokens must be at least 2: " +
                                    std::to_string(options.tokens));
    if (options.prompt < 1 || options.batch < 1 || options.rounds < 1)
        throw std::invalid_argument(
            "bench_generate: --prompt, --batch and --rounds must be positive");
    return options;
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    try {
        std::cout << axle::bench::measure(axle::bench::parse({argv + 1, argv + argc})).dump()
                  << '\n';
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
