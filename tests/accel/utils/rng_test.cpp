// Tests which random numbers are equal on several processes, the seeds of samplers, and the names
// of RngType.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"
#include "core/system/numerics.h"
#include "tests/accel/loading/loaders.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/job.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using accel::RngType;
using tests::Job;
using tests::numbers;
using tests::on_ranks;
using tests::range;
using tests::Rows;
using Group = std::shared_ptr<dist::ProcessGroup>;

std::uint64_t own_seed(const Group& group) {
    return 100 + static_cast<std::uint64_t>(group->rank());
}

// Returns the samples of a pass on all processes.
Rows pass_of_all(const Accelerator& accelerator, data::DataLoader& loader) {
    Rows all;
    for (auto& batch : loader)
        for (const std::int64_t row : tests::rows_of(accelerator.gather_for_metrics(batch)))
            all.push_back(row);
    return all;
}

// Covers 1.rng_types, 4.rng_types, 4.synchronized.
TEST(ShuffledOrder, MatchesTheMainProcessInEveryPass) {
    on_ranks(2, [](const Group& group) {
        for (const bool dispatches : {false, true}) {
            Accelerator accelerator(
                {.cpu = true,
                 .dataloader_config =
                     accel::DataLoaderConfiguration{.dispatch_batches = dispatches},
                 .process_group = group});
            data::DataLoader loader(numbers(10),
                                    {.batch_size = 2, .shuffle = true, .seed = own_seed(group)});
            accelerator.prepare(loader);
            const data::RandomSampler order(10, {.seed = 100});
            for (int epoch = 0; epoch < 3; ++epoch) {
                EXPECT_EQ(pass_of_all(accelerator, loader), order.indices(epoch));
                loader.generator()->manual_seed(group->rank() == 0 ? 100 : 7);
            }
        }
    });
}

// Covers 1.rng_types, 4.rng_types.
TEST(PreparedLoader, KeepsItsSeedIfRngTypesIsEmpty) {
    on_ranks(2, [](const Group& group) {
        data::DataLoader loader(numbers(10), {.shuffle = true, .seed = own_seed(group)});
        accel::prepare_data_loader(loader, group, {.rng_types = {}});
        for ([[maybe_unused]] auto& batch : loader) {
        }
        EXPECT_EQ(loader.generator()->initial_seed(), own_seed(group));
    });
}

// A batch sampler and a stream with their own generators.
class OwnBatches : public data::BatchSampler {
  public:
    explicit OwnBatches(std::uint64_t seed) : generator_(std::make_shared<data::Generator>(seed)) {}
    std::int64_t size() const override { return 2; }
    data::BatchOrder order(std::int64_t) const override {
        return [](std::int64_t i) { return Rows{i}; };
    }
    std::shared_ptr<data::Generator> generator() const override { return generator_; }

  private:
    std::shared_ptr<data::Generator> generator_;
};

class OwnStream : public data::GeneratorDataset {
  public:
    explicit OwnStream(std::uint64_t seed)
        : data::GeneratorDataset([](std::int64_t) { return [] { return std::optional<Tree>(); }; }),
          generator_(std::make_shared<data::Generator>(seed)) {}
    std::shared_ptr<data::Generator> generator() const override { return generator_; }

  private:
    std::shared_ptr<data::Generator> generator_;
};

// Covers 32.generator.
TEST(PreparedLoader, SynchronizesTheGeneratorOfSamplerBatchSamplerOrStream) {
    on_ranks(2, [](const Group& group) {
        const auto of_sampler = std::make_shared<data::Generator>(own_seed(group));
        const auto sampler = std::make_shared<data::RandomSampler>(
            4, data::RandomSamplerOptions{.generator = of_sampler});
        const auto batches = std::make_shared<OwnBatches>(own_seed(group));
        const auto stream = std::make_shared<OwnStream>(own_seed(group));
        data::DataLoader by_sampler(numbers(4), {.sampler = sampler}),
            grouped(numbers(4), {.batch_sampler =
                                     std::make_shared<data::FixedBatchSampler>(sampler, 2, false)}),
            by_batches(numbers(4), {.batch_sampler = batches}), iterable(stream),
            sequential(numbers(4));
        EXPECT_EQ(by_sampler.generator(), of_sampler);
        EXPECT_EQ(grouped.generator(), of_sampler);
        EXPECT_EQ(by_batches.generator(), batches->generator());
        EXPECT_EQ(iterable.generator(), stream->generator());
        EXPECT_EQ(sequential.generator(), nullptr);
        for (data::DataLoader* loader :
             {&by_sampler, &grouped, &by_batches, &iterable, &sequential}) {
            if (loader->generator()) loader->generator()->manual_seed(own_seed(group));
            accel::prepare_data_loader(*loader, group);
            for ([[maybe_unused]] auto& batch : *loader) {
            }
            if (loader->generator()) {
                EXPECT_EQ(loader->generator()->initial_seed(), 100U);
            }
        }
    });
}

// Draws a number on each of two processes in two passes, from generators with different seeds. For
// each pass, the result contains "same" if both numbers are equal, else "other". " again" follows
// if process 0 draws the same number as in the first pass.
std::string draws_in_passes(const Group& group, std::vector<std::string> rng_types) {
    manual_seed(own_seed(group));
    Accelerator accelerator(
        {.cpu = true, .rng_types = std::move(rng_types), .process_group = group});
    data::DataLoader loader(numbers(2));
    accelerator.prepare(loader);
    std::string result;
    double before = -1;
    for (int epoch = 0; epoch < 2; ++epoch)
        for ([[maybe_unused]] auto& batch : loader) {
            const std::vector<double> all = group->all_gather(rand({1})).to_vector();
            result += all[0] == all[1] ? "same" : "other";
            if (all[0] == before) result += " again";
            before = all[0];
        }
    return result;
}

// Covers 13.synchronize_rng_state, 23.synchronize_rng_states.
TEST(RngTypes, SynchronizeTheDefaultGeneratorInEachPassIfTheyIncludeTorchOrCuda) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        return str(draws_in_passes(group, {"torch", "generator"}), ' ',
                   draws_in_passes(group, {"cuda"}), ' ', draws_in_passes(group, {"generator"}));
    });
    for (const tests::RankOutcome& rank : job.wait(30s))
        EXPECT_EQ(rank.text, "samesame samesame otherother");
}

// Covers 23.RNGType.
TEST(RngTypes, AreParsedFromNames) {
    EXPECT_EQ(accel::rng_type("torch"), RngType::torch);
    EXPECT_EQ(accel::rng_type("cuda"), RngType::cuda);
    EXPECT_EQ(accel::rng_type("generator"), RngType::generator);
    tests::expect_error<ValueError>({"rng_types: must be torch, cuda or generator", "'Torch'"},
                                    [] { accel::rng_type("Torch"); });
    tests::expect_error<ValueError>({"rng_types: ", "''"}, [] { accel::rng_type(""); });
}

// --- seeds

// Covers 4.use_seedable_sampler, 4.data_seed.
TEST(SeedableSampler, UsesTheDataSeed) {
    Accelerator accelerator({.cpu = true,
                             .dataloader_config = accel::DataLoaderConfiguration{
                                 .use_seedable_sampler = true, .data_seed = 42}});
    data::DataLoader loader(numbers(6), {.batch_size = 6, .shuffle = true, .seed = 3});
    accelerator.prepare(loader);
    const Rows epochs[] = {{0, 3, 2, 4, 1, 5}, {4, 0, 5, 1, 2, 3}, {4, 0, 3, 2, 5, 1}};
    for (const Rows& expected : epochs) EXPECT_EQ(pass_of_all(accelerator, loader), expected);
}

// Covers 4.use_seedable_sampler, 31.use_seedable_sampler.
TEST(SeedableSampler, UsesTheDefaultGeneratorWithoutADataSeed) {
    manual_seed(42);
    const auto order = [](bool seedable) {
        Accelerator accelerator({.cpu = true,
                                 .dataloader_config = accel::DataLoaderConfiguration{
                                     .use_seedable_sampler = seedable}});
        data::DataLoader loader(numbers(6), {.batch_size = 6, .shuffle = true, .seed = 3});
        accelerator.prepare(loader);
        return pass_of_all(accelerator, loader);
    };
    EXPECT_EQ(order(true), (Rows{0, 3, 2, 4, 1, 5}));
    EXPECT_EQ(order(false), data::RandomSampler(6, {.seed = 3}).indices(0));
}

// Covers 13.set_seed, 23.set_seed.
TEST(SetSeed, SeedsAllProcessesEquallyUnlessDeviceSpecificAndCanEnableDeterminism) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        setenv("RANK", std::to_string(environment.rank).c_str(), 1);
        setenv("WORLD_SIZE", "2", 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", std::to_string(environment.master_port).c_str(), 1);
        setenv("AXLE_JOB_TOKEN", environment.token.c_str(), 1);
        const auto seed = [](accel::SetSeedOptions options) {
            accel::set_seed(7, options);
            return str(generator_state().seed, ' ');
        };
        std::string seeds = seed({}) + seed({.device_specific = true});
        const Accelerator accelerator({.cpu = true});
        seeds += seed({}) + seed({.device_specific = true});
        seeds += are_deterministic_algorithms_enabled() ? "deterministic " : "as fast as can be ";
        seed({.deterministic = true});
        return seeds + (are_deterministic_algorithms_enabled() ? "deterministic" : "fast");
    });
    const auto ends = job.wait(30s);
    EXPECT_EQ(ends[0].text, "7 7 7 7 as fast as can be deterministic");
    EXPECT_EQ(ends[1].text, "7 8 7 8 as fast as can be deterministic");
}

}  // namespace
}  // namespace axle
