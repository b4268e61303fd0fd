// Tests the schedules that prepare() creates for a MegatronLMPlugin, and its parameter groups.
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "accel/megatron/megatron_network.h"
#include "accel/prepare/deepspeed_objects.h"
#include "gmock/gmock.h"
#include "tests/dist/pipeline/pipeline_models.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::MegatronLMDummyScheduler;
using accel::MegatronLMPlugin;
using accel::NotImplementedError;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;

constexpr std::int64_t kBatch = 4;

AcceleratorOptions options_of(const Group& group, MegatronLMPlugin plugin) {
    return {.cpu = true, .megatron_lm_plugin = std::move(plugin), .process_group = group};
}

data::TensorDataset texts() { return data::TensorDataset(tests::pipeline_batch(0, 24)); }

auto are_near(const std::vector<double>& expected) {
    return testing::Pointwise(testing::DoubleNear(1e-12), expected);
}

struct Values {
    std::vector<double> rates, decays;
};

// Returns the rates and weight decays after 0, 1, ... `updates` updates with AdamW at the rate 1
// and the weight decay 0.25. The loaders have the batch sizes kBatch and 2 kBatch.
Values train(nn::Gpt& model, const AcceleratorOptions& options, MegatronLMDummyScheduler schedule,
             int updates) {
    Accelerator accelerator(options);
    optim::AdamW optimizer(model.parameters(), {.lr = 1, .weight_decay = 0.25});
    const auto data = texts();
    data::DataLoader loader(data, {.batch_size = kBatch}), other(data, {.batch_size = 2 * kBatch});
    accelerator.prepare(model, optimizer, loader, other, schedule);
    Values values;
    const auto note = [&] {
        values.rates.push_back(schedule.get_last_lr()[0]);
        values.decays.push_back(optimizer.param_groups()[0].weight_decay);
    };
    note();
    for (int update = 0; update < updates; ++update) {
        accelerator.pipeline_step(model, tests::pipeline_batch(update));
        optimizer.step();
        schedule.step();
        optimizer.zero_grad();
        note();
    }
    return values;
}

// Two replicas train together, so a run of 8 steps with a warmup of 4 steps has 4 updates. The
// first 2 updates are the warmup.
// Covers 16.is_train_batch_min, 5.MegatronLMOptimizerWrapper.
TEST(MegatronSchedule, DividesTheStepsOfItsPlaceholderByTheReplicas) {
    auto models = clones_of(tests::pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        const Values values =
            train(models[at(group)], options_of(group, {.min_lr = 0.5}),
                  MegatronLMDummyScheduler{.total_num_steps = 8, .warmup_num_steps = 4}, 5);
        EXPECT_THAT(values.rates, are_near({0, 0.5, 1, 0.75, 0.5, 0.5}));
        EXPECT_THAT(values.decays, testing::Each(0.25));
    });
}

// Covers 16.is_train_batch_min.
TEST(MegatronSchedule, PrefersIterationCountsOfThePluginToStepCountsOfThePlaceholder) {
    nn::Gpt model = tests::pipeline_gpt();
    const AcceleratorOptions options =
        options_of(dist::ProcessGroup::alone(), {.train_iters = 8,
                                                 .lr_decay_iters = 4,
                                                 .lr_warmup_iters = 2,
                                                 .weight_decay_incr_style = "linear",
                                                 .start_weight_decay = 0,
                                                 .end_weight_decay = 0.8});
    const Values values =
        train(model, options, {.total_num_steps = 100, .warmup_num_steps = 50}, 5);
    EXPECT_THAT(values.rates, are_near({0, 0.5, 1, 0.5, 0, 0}));
    EXPECT_THAT(values.decays, are_near({0, 0.1, 0.2, 0.3, 0.4, 0.5}));
}

// An update has the samples of the smallest or of the largest loader for both replicas: 8 or 16.
// Covers 16.is_train_batch_min.
TEST(MegatronSchedule, CountsSamplesOfTheSmallestOrLargestLoader) {
    for (const bool is_min : {true, false}) {
        auto models = clones_of(tests::pipeline_gpt(), 2);
        on_ranks(2, [&](const Group& group) {
            const Values values = train(models[at(group)],
                                        options_of(group, {.is_train_batch_min = is_min,
                                                           .train_samples = 64,
                                                           .lr_warmup_fraction = 0.25}),
                                        {}, 3);
            const std::vector<double> expected = is_min
                                                     ? std::vector<double>{0, 0.5, 1, 5.0 / 6}
                                                     : std::vector<double>{0, 1, 2.0 / 3, 1.0 / 3};
            EXPECT_THAT(values.rates, are_near(expected));
        });
    }
}

// An update of two batches has twice as many samples.
// Covers 16.is_train_batch_min.
TEST(MegatronSchedule, CountsTheSamplesOfAllMicroBatchesOfAnUpdate) {
    nn::Gpt model = tests::pipeline_gpt();
    AcceleratorOptions options =
        options_of(dist::ProcessGroup::alone(), {.train_samples = 32, .lr_decay_samples = 16});
    options.gradient_accumulation_steps = 2;
    EXPECT_THAT(train(model, options, {}, 2).rates, are_near({1, 0.5, 0}));
}

// Covers 16.is_train_batch_min.
TEST(MegatronSchedule, ReadsFurtherArgumentsOfMegatronLM) {
    nn::Gpt model = tests::pipeline_gpt();
    const AcceleratorOptions options = options_of(
        dist::ProcessGroup::alone(), {.train_iters = 6,
                                      .lr_decay_style = "WSD",
                                      .lr_warmup_iters = 2,
                                      .other_megatron_args = {{"lr_warmup_init", 0.5},
                                                              {"lr_wsd_decay_style", "linear"},
                                                              {"lr_wsd_decay_iters", 2}}});
    EXPECT_THAT(train(model, options, {}, 6).rates, are_near({0.5, 0.75, 1, 1, 1, 0.5, 0}));
}

// Covers 16.is_train_batch_min.
TEST(MegatronParamGroups, SelectParametersWithoutWeightDecayAndWithAnotherRate) {
    const nn::Gpt model = tests::pipeline_gpt();
    MegatronLMPlugin plugin{.lr_mult = 0.5};
    const auto groups = accel::megatron_param_groups<optim::AdamWOptions>(
        model, plugin, {.lr = 0.2, .weight_decay = 0.1});
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_EQ(groups[0].weight_decay, 0.1);
    EXPECT_EQ(groups[1].weight_decay, 0);
    for (const Tensor& matrix : groups[0].params) EXPECT_EQ(matrix.dim(), 2);
    for (const Tensor& vector : groups[1].params) EXPECT_EQ(vector.dim(), 1);
    EXPECT_EQ(groups[0].params.size() + groups[1].params.size(), model.parameters().size());
    plugin.no_wd_decay_cond = [](const std::string& name, const Tensor&) {
        return name.find("wpe") != std::string::npos;
    };
    plugin.scale_lr_cond = [](const std::string&, const Tensor& parameter) {
        return parameter.dim() == 1;
    };
    const auto chosen = accel::megatron_param_groups<optim::AdamWOptions>(
        model, plugin, {.lr = 0.2, .weight_decay = 0.1});
    ASSERT_EQ(chosen.size(), 3u);
    EXPECT_EQ(chosen[1].params.size(), 1u);
    EXPECT_TRUE(chosen[1].params[0].is_same(model.transformer.wpe.weight));
    EXPECT_EQ(chosen[1].weight_decay, 0);
    EXPECT_EQ(chosen[2].lr, 0.1);
    EXPECT_EQ(chosen[2].weight_decay, 0.1);
}

// Covers 16.is_train_batch_min.
TEST(MegatronSchedule, RejectsContradictoryInvalidAndMissingOptions) {
    const auto invalid = [](MegatronLMPlugin plugin, std::initializer_list<const char*> texts) {
        expect_error<ValueError>(texts, [&] {
            nn::Gpt model = tests::pipeline_gpt();
            train(model, options_of(dist::ProcessGroup::alone(), std::move(plugin)), {}, 0);
        });
    };
    invalid({.train_iters = 2, .train_samples = 2},
            {"MegatronLMPlugin: train_iters and train_samples are both given; use one"});
    invalid({.train_iters = 2, .lr_decay_samples = 2}, {"", "train_iters and lr_decay_samples"});
    invalid({.train_samples = 2, .lr_warmup_iters = 1}, {"", "train_samples and lr_warmup_iters"});
    invalid({.train_iters = 2, .lr_warmup_iters = 1, .lr_warmup_fraction = 0.5},
            {"", "lr_warmup_fraction and lr_warmup_iters"});
    invalid({.train_iters = 2, .lr_warmup_fraction = 1},
            {"MegatronLMPlugin: lr_warmup_fraction must be at least 0 and less than 1: 1"});
    invalid({.lr_decay_style = "steep"}, {"lr_decay_style: must be one of ", "'steep'"});
    invalid({.weight_decay_incr_style = "steep"}, {"weight_decay_incr_style: must be one of "});
    invalid({}, {"MegatronLMPlugin: the schedule needs train_iters, train_samples or "});
    invalid({.train_iters = 2, .weight_decay_incr_style = "linear"},
            {"MegatronLMPlugin: weight_decay_incr_style 'linear' needs start_weight_decay"});
    invalid({.train_iters = 2, .min_lr = 2}, {"OptimizerParamScheduler: min_lr must be "});
    expect_error<NotImplementedError>(
        {"MegatronLMPlugin: other_megatron_args: 'vocab_file' is not an argument"}, [] {
            const Accelerator accelerator(
                options_of(dist::ProcessGroup::alone(),
                           {.other_megatron_args = {{"vocab_file", "vocab.json"}}}));
        });
    nn::Gpt model = tests::pipeline_gpt();
    Accelerator accelerator(options_of(dist::ProcessGroup::alone(), {.train_samples = 8}));
    optim::AdamW optimizer(model.parameters());
    MegatronLMDummyScheduler schedule;
    expect_error<ValueError>({"MegatronLMPlugin: train_samples needs a loader with a batch size"},
                             [&] { accelerator.prepare(model, optimizer, schedule); });
}

}  // namespace
}  // namespace axle
