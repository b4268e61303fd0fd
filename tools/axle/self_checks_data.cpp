// Checks of the samples that each process gets, and of their order. The value of a sample is its
// index.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "data/dataset.h"
#include "data/loading/iterable.h"
#include "data/loading/loader.h"
#include "data/sampler.h"
#include "kernels/error.h"
#include "tools/axle/self_checks.h"

namespace axle::launcher {
namespace {

constexpr std::int64_t kBatch = 8, kBatches = 4;

std::shared_ptr<const data::Dataset> indices(std::int64_t n) {
    return std::make_shared<data::FunctionDataset>(n, [](std::int64_t i) {
        return Tree{{"index", i}};
    });
}

std::shared_ptr<const data::IterableDataset> stream_of(std::int64_t n) {
    return std::make_shared<data::GeneratorDataset>([n](std::int64_t) {
        return [i = std::int64_t{0}, n]() mutable -> std::optional<Tree> {
            if (i == n) return std::nullopt;
            return Tree{{"index", i++}};
        };
    });
}

std::vector<double> first_numbers(std::int64_t n) {
    std::vector<double> values(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), 0);
    return values;
}

// Returns the samples of all processes, step by step in rank order.
std::vector<double> gathered_pass(Accelerator& accelerator, data::DataLoader& loader) {
    std::vector<double> samples;
    for (auto& batch : loader) {
        const std::vector<double> step = numbers(accelerator.gather(batch)["index"]);
        samples.insert(samples.end(), step.begin(), step.end());
    }
    return samples;
}

// Prepares the loader with `config`, and returns the samples of all processes in one pass.
std::vector<double> pass_of(Accelerator& accelerator, data::DataLoader& loader,
                            accel::DataLoaderConfiguration config) {
    accel::AcceleratorOptions options = options_for(accelerator.state());
    options.dataloader_config = std::move(config);
    Accelerator other(std::move(options));
    other.prepare(loader);
    return gathered_pass(other, loader);
}

void check_map_loader(Accelerator& accelerator, bool dispatch) {
    const std::int64_t processes = accelerator.num_processes();
    for (const bool split : {false, true})
        for (const bool shuffle : {false, true}) {
            const std::int64_t batch = split ? kBatch * processes : kBatch;
            const std::int64_t n = kBatch * kBatches * processes;
            data::DataLoader loader(indices(n),
                                    {.batch_size = batch, .shuffle = shuffle, .seed = 7});
            std::vector<double> samples = pass_of(
                accelerator, loader, {.split_batches = split, .dispatch_batches = dispatch});
            const std::string which = str("with split_batches=", split, " and shuffle=", shuffle);
            if (shuffle) {
                expect(samples != first_numbers(n), "the samples were not shuffled " + which);
                std::sort(samples.begin(), samples.end());
            }
            expect_equal(samples, first_numbers(n),
                         str("the ", shuffle ? "sorted " : "",
                             "list of the samples of all processes ", which));
        }
}

void check_iterable_loader(Accelerator& accelerator, bool dispatch) {
    const std::int64_t processes = accelerator.num_processes();
    for (const bool split : {false, true}) {
        const std::int64_t n = kBatch * kBatches * processes;
        data::DataLoader loader(stream_of(n), {.batch_size = split ? kBatch * processes : kBatch});
        expect_equal(
            pass_of(accelerator, loader, {.split_batches = split, .dispatch_batches = dispatch}),
            first_numbers(n),
            str("the list of the samples of all processes with split_batches=", split));
    }
}

// Checks a dataset whose last step is not full: all processes have the same number of steps, for
// which batches are filled with repeated samples, and metrics count each sample once.
void check_uneven_data(Accelerator& accelerator) {
    const std::int64_t processes = accelerator.num_processes();
    const std::int64_t n = kBatch * kBatches * processes - kBatch - 1;
    data::DataLoader loader(indices(n), {.batch_size = kBatch});
    Accelerator other(options_for(accelerator.state()));
    other.prepare(loader);
    std::vector<double> samples;
    std::int64_t steps = 0;
    for (auto& batch : loader) {
        ++steps;
        const std::vector<double> step = numbers(other.gather_for_metrics(batch)["index"]);
        samples.insert(samples.end(), step.begin(), step.end());
    }
    expect_equal(samples, first_numbers(n), "the list of the samples from gather_for_metrics");
    for (const double theirs : of_all(accelerator.state(), {static_cast<double>(steps)}))
        expect(theirs == static_cast<double>(steps),
               str("all processes must have the same number of steps: this process has ", steps,
                   ", another process has ", theirs));
}

// Checks that join_uneven_inputs() uses every sample once, and that even_batches is true again
// after its scope.
void check_join(Accelerator& accelerator) {
    const std::int64_t processes = accelerator.num_processes();
    if (processes == 1) return;
    const std::int64_t n = 2 * processes - 1;
    data::DataLoader loader(indices(n), {.batch_size = 1});
    Accelerator other(options_for(accelerator.state()));
    other.prepare(loader);
    std::vector<double> mine;
    {
        const auto scope = other.join_uneven_inputs({}, false);
        for (auto& batch : loader) mine.push_back(numbers(batch["index"])[0]);
    }
    std::vector<double> all = of_all(accelerator.state(), mine);
    std::sort(all.begin(), all.end());
    expect_equal(all, first_numbers(n),
                 "join_uneven_inputs: the sorted list of the samples of all processes");
    const auto after = std::ssize(gathered_pass(other, loader));
    expect(after == 2 * processes, str("even_batches must be true again after the scope of "
                                       "join_uneven_inputs: a pass must have ",
                                       2 * processes, " samples, and has ", after));
}

void check_custom_sampler(Accelerator& accelerator) {
    struct Backwards : data::Sampler {
        explicit Backwards(std::int64_t n_) : n(n_) {}
        std::int64_t size() const override { return n; }
        data::Order order(std::int64_t) const override {
            return [n = n](std::int64_t i) { return n - 1 - i; };
        }
        std::int64_t n;
    };
    const std::int64_t n = kBatch * kBatches * accelerator.num_processes();
    data::DataLoader loader(indices(n),
                            {.batch_size = kBatch, .sampler = std::make_shared<Backwards>(n)});
    std::vector<double> samples = pass_of(accelerator, loader, {});
    std::reverse(samples.begin(), samples.end());
    expect_equal(samples, first_numbers(n),
                 "the list of the samples in the reverse of the custom order");
}

// Checks that the order depends only on the seed and the epoch, with and without split_batches.
void check_seedable_sampler(Accelerator& accelerator) {
    const std::int64_t processes = accelerator.num_processes();
    const std::int64_t n = kBatch * kBatches * processes;
    const auto passes = [&](bool split) {
        data::DataLoader loader(
            indices(n), {.batch_size = split ? kBatch * processes : kBatch,
                         .shuffle = true,
                         .seed = 1 + static_cast<std::uint64_t>(accelerator.process_index())});
        accel::AcceleratorOptions options = options_for(accelerator.state());
        options.dataloader_config = accel::DataLoaderConfiguration{
            .split_batches = split, .use_seedable_sampler = true, .data_seed = 42};
        Accelerator other(std::move(options));
        other.prepare(loader);
        std::vector<std::vector<double>> both;
        for (int epoch = 0; epoch < 2; ++epoch) both.push_back(gathered_pass(other, loader));
        return both;
    };
    const auto whole = passes(false), again = passes(false), split = passes(true);
    expect(whole == again, "the same seed gave different orders");
    expect(whole == split, "the order with split_batches differs");
    expect(whole[0] != whole[1], "two epochs had the same order");
    const data::RandomSampler sampler(n, {.seed = 42});
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        const std::vector<std::int64_t> order = sampler.indices(epoch);
        expect_equal(whole[static_cast<std::size_t>(epoch)],
                     std::vector<double>(order.begin(), order.end()),
                     str("the order of epoch ", epoch, " with seed 42"));
    }
}

}  // namespace

std::vector<Check> data_checks() {
    return {
        check_with("loader: map", [](Accelerator& a) { check_map_loader(a, false); }),
        check_with("loader: map, dispatched", [](Accelerator& a) { check_map_loader(a, true); }),
        check_with("loader: iterable", [](Accelerator& a) { check_iterable_loader(a, false); }),
        check_with("loader: iterable, dispatched",
                   [](Accelerator& a) { check_iterable_loader(a, true); }),
        check_with("loader: uneven data", check_uneven_data),
        check_with("loader: join uneven inputs", check_join),
        check_with("loader: custom sampler", check_custom_sampler),
        check_with("loader: seedable sampler", check_seedable_sampler)};
}

}  // namespace axle::launcher
