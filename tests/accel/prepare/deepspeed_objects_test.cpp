// Tests the optimizers, schedules and values of DeepSpeed configurations. The expected rates were
// computed with deepspeed.runtime.lr_schedules of DeepSpeed 0.19.
#include "accel/prepare/deepspeed_objects.h"

#include <memory>
#include <string>
#include <vector>

#include "accel/config/options.h"
#include "accel/config/resolve_options.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/log_capture.h"

namespace axle::accel {
namespace {

using testing::ElementsAre;
using tests::expect_error;

Tensor parameter() { return ones({2}, {.requires_grad = true}); }

DeepSpeedConfig with_optimizer(const char* type, const Tree& params) {
    return Tree{{"optimizer", {{"type", type}, {"params", params}}}};
}

DeepSpeedPlugin resolved_plugin(const DeepSpeedPlugin& plugin) {
    return *resolved({.deepspeed_plugin = plugin}).deepspeed_plugin;
}

// The learning rates and momentums of a schedule at the first epochs, and the optimizer's second
// beta at the end.
struct Course {
    std::vector<double> rates, momentums;
    double second_beta = 0;
};
Course course(const char* type, const Tree& params, int epochs) {
    optim::AdamW adamw({parameter()}, {.lr = 0.1});
    DeepSpeedConfig config(Tree{{"scheduler", {{"type", type}, {"params", params}}}});
    const auto schedule = make_scheduler(config, adamw, {}, 1);
    Course result;
    for (int epoch = 0; epoch < epochs; ++epoch) {
        if (epoch > 0) schedule->step();
        result.rates.push_back(adamw.group(0).lr);
        result.momentums.push_back(adamw.group(0).momentum);
    }
    result.second_beta = adamw.param_groups()[0].betas[1];
    return result;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
    EXPECT_THAT(actual, testing::Pointwise(testing::DoubleNear(1e-11), expected));
}

// Covers 15.hf_ds_config, 15.engine.
TEST(MakeOptimizer, CreatesTheOptimizerOfTheDeepSpeedConfiguration) {
    DeepSpeedConfig config = with_optimizer(
        "AdamW", {{"lr", "auto"}, {"weight_decay", "auto"}, {"betas", Tree::list({0.8, 0.95})}});
    const auto made = make_optimizer(config, DummyOptim({parameter()}, 0.25, 0.5));
    auto* const adamw = dynamic_cast<optim::AdamW*>(made.get());
    ASSERT_NE(adamw, nullptr);
    EXPECT_EQ(adamw->param_groups()[0].lr, 0.25);
    EXPECT_EQ(adamw->param_groups()[0].weight_decay, 0.5);
    EXPECT_EQ(adamw->param_groups()[0].betas, (std::array{0.8, 0.95}));
    EXPECT_EQ(config.get_value("optimizer.params.lr").number(), 0.25);

    DeepSpeedConfig explicit_lr = with_optimizer("AdamW", {{"lr", 2}});
    const auto second = make_optimizer(explicit_lr, DummyOptim({parameter()}, 0.25, 0.5));
    EXPECT_EQ(second->group(0).lr, 2);  // the configuration takes precedence
    EXPECT_EQ(dynamic_cast<optim::AdamW&>(*second).param_groups()[0].weight_decay, 0);

    DeepSpeedConfig adam = with_optimizer("Adam", {{"lr", 1}});
    EXPECT_NE(dynamic_cast<optim::AdamW*>(make_optimizer(adam, {{parameter()}}).get()), nullptr);
    DeepSpeedConfig coupled = with_optimizer("Adam", {{"adam_w_mode", false}, {"eps", 0.5}});
    const auto plain = make_optimizer(coupled, {{parameter()}});
    ASSERT_NE(dynamic_cast<optim::Adam*>(plain.get()), nullptr);
    EXPECT_EQ(dynamic_cast<optim::Adam&>(*plain).param_groups()[0].eps, 0.5);
    DeepSpeedConfig sgd = with_optimizer("SGD", {{"lr", 1}, {"momentum", 0.5}, {"nesterov", true}});
    const auto nesterov = make_optimizer(sgd, {{parameter()}});
    ASSERT_NE(dynamic_cast<optim::SGD*>(nesterov.get()), nullptr);
    EXPECT_EQ(nesterov->group(0).momentum, 0.5);
}

// Covers 15.hf_ds_config.
TEST(MakeOptimizer, KeepsTheOptionsOfParameterGroups) {
    DeepSpeedConfig config = with_optimizer("AdamW", {{"lr", 0.5}, {"weight_decay", 0.1}});
    const auto made =
        make_optimizer(config, DummyOptim(std::vector<DummyOptim::Group>{
                                   {{parameter()}, {}, 0.0}, {{parameter()}, 0.25, {}}}));
    auto& adamw = dynamic_cast<optim::AdamW&>(*made);
    EXPECT_EQ(adamw.param_groups()[0].lr, 0.5);
    EXPECT_EQ(adamw.param_groups()[0].weight_decay, 0);
    EXPECT_EQ(adamw.param_groups()[1].lr, 0.25);
    EXPECT_EQ(adamw.param_groups()[1].weight_decay, 0.1);
}

// Covers 15.hf_ds_config.
TEST(MakeOptimizer, RejectsInvalidAndUnsupportedOptimizerSections) {
    const DummyOptim dummy({parameter()});
    const auto refused = [&](DeepSpeedConfig config, std::initializer_list<const char*> parts) {
        expect_error<ValueError>(parts, [&] { make_optimizer(config, dummy); });
    };
    refused({}, {"DeepSpeedConfig: the DeepSpeed configuration: the section optimizer is missing"});
    refused(Tree{{"optimizer", Tree::map()}}, {"DeepSpeedConfig: ", "optimizer.type must be"});
    refused(
        with_optimizer("AdamW", {{"rate", 1}}),
        {"DeepSpeedConfig: ", "optimizer.params.rate: AdamW has no such option; expected one of "});
    refused(with_optimizer("AdamW", {{"lr", "fast"}}),
            {"DeepSpeedConfig: ", "optimizer.params.lr: must be a number: \"fast\""});
    refused(with_optimizer("AdamW", {{"betas", Tree::list({0.9})}}),
            {"DeepSpeedConfig: ", "optimizer.params.betas: must be a number or 2 numbers"});
    refused(with_optimizer("AdamW", {{"bias_correction", false}}),
            {"DeepSpeedConfig: ", "optimizer.params.bias_correction: must be true"});
    DeepSpeedConfig lamb = with_optimizer("Lamb", Tree::map());
    expect_error<NotImplementedError>(
        {"DeepSpeedConfig: ", "optimizer.type: 'Lamb' is not implemented; use Adam"},
        [&] { make_optimizer(lamb, dummy); });
}

// Covers 15.hf_ds_config, 15.engine.
TEST(MakeScheduler, MatchesTheSchedulesOfDeepSpeed) {
    expect_near(
        course("WarmupLR",
               {{"warmup_min_lr", 0.01}, {"warmup_max_lr", 0.2}, {"warmup_num_steps", 3}}, 6)
            .rates,
        {0.01, 0.01, 0.129876653179, 0.2, 0.2, 0.2});
    expect_near(course("WarmupLR", {{"warmup_num_steps", 3}, {"warmup_type", "linear"}}, 6).rates,
                {0, 0, 0.1 / 3, 0.2 / 3, 0.1, 0.1});
    expect_near(
        course("WarmupDecayLR",
               {{"total_num_steps", 8}, {"warmup_max_lr", 0.2}, {"warmup_num_steps", 3}}, 10)
            .rates,
        {0, 0, 0.126185950714, 0.2, 0.2, 0.16, 0.12, 0.08, 0.04, 0});
    expect_near(course("WarmupCosineLR",
                       {{"total_num_steps", 7},
                        {"warmup_min_ratio", 0.1},
                        {"warmup_num_steps", 3},
                        {"cos_min_ratio", 0.01},
                        {"warmup_type", "linear"}},
                       10)
                    .rates,
                {0, 0.01, 0.04, 0.07, 0.085501785669, 0.0505, 0.015498214331, 0.001, 0.001, 0.001});
    const Tree range = {{"lr_range_test_min_lr", 0.001},
                        {"lr_range_test_step_size", 2},
                        {"lr_range_test_step_rate", 2}};
    expect_near(course("LRRangeTest", range, 6).rates, {0.001, 0.002, 0.003, 0.004, 0.005, 0.006});
    Tree stairs = range;
    stairs.set("lr_range_test_staircase", true);
    expect_near(course("LRRangeTest", stairs, 6).rates, {0.001, 0.001, 0.003, 0.003, 0.005, 0.005});
}

// Covers 15.hf_ds_config.
TEST(MakeScheduler, CyclesRatesAndMomentumsInOneCycleSchedules) {
    const Course cycle = course("OneCycle",
                                {{"cycle_min_lr", 0.01},
                                 {"cycle_max_lr", 0.1},
                                 {"cycle_first_step_size", 3},
                                 {"cycle_second_step_size", 2},
                                 {"decay_step_size", 2},
                                 {"decay_lr_rate", 0.5},
                                 {"decay_mom_rate", 0.25}},
                                10);
    expect_near(cycle.rates,
                {0.01, 0.04, 0.07, 0.1, 0.055, 0.01, 0.008, 0.02 / 3, 0.04 / 7, 0.005});
    expect_near(cycle.momentums,
                {0.8, 2.6 / 3, 2.5 / 3, 0.8, 0.85, 0.9, 1.0125, 1.125, 1.2375, 1.35});
    EXPECT_EQ(cycle.second_beta, 0.99);
    const Course stairs = course("OneCycle",
                                 {{"cycle_min_lr", 0.01},
                                  {"cycle_max_lr", 0.1},
                                  {"cycle_first_step_size", 4},
                                  {"cycle_first_stair_count", 2},
                                  {"cycle_momentum", false}},
                                 8);
    expect_near(stairs.rates, {0.01, 0.01, 0.055, 0.055, 0.1, 0.055, 0.055, 0.01});
    EXPECT_EQ(stairs.momentums.back(), 0.9);
    EXPECT_EQ(stairs.second_beta, 0.999);
    tests::LogCapture log;
    optim::SGD sgd({parameter()});
    DeepSpeedConfig config(
        Tree{{"scheduler",
              {{"type", "OneCycle"}, {"params", {{"cycle_min_lr", 0.1}, {"cycle_max_lr", 0.2}}}}}});
    const auto schedule = make_scheduler(config, sgd, {}, 1);
    EXPECT_THAT(log.lines(), ElementsAre(testing::HasSubstr("cycle_momentum has no effect")));
}

// Covers 15.hf_ds_config.
TEST(MakeScheduler, FillsAutoValuesOfTheDeepSpeedConfigurationAndRejectsAMissingTotal) {
    optim::AdamW adamw({parameter()}, {.lr = 0.5});
    const auto config = [] {
        return DeepSpeedConfig(Tree{{"scheduler",
                                     {{"type", "WarmupDecayLR"},
                                      {"params",
                                       {{"warmup_min_lr", "auto"},
                                        {"warmup_max_lr", "auto"},
                                        {"warmup_num_steps", "auto"},
                                        {"total_num_steps", "auto"}}}}}});
    };
    DeepSpeedConfig filled = config();
    const auto schedule =
        make_scheduler(filled, adamw, {.total_num_steps = 9, .warmup_num_steps = 2}, 4);
    EXPECT_EQ(filled.get_value("scheduler.params.warmup_max_lr").number(), 0.5);
    EXPECT_EQ(filled.get_value("scheduler.params.warmup_num_steps").integer(), 2);
    EXPECT_EQ(filled.get_value("scheduler.params.total_num_steps").integer(), 3);
    DeepSpeedConfig no_total = config();
    expect_error<ValueError>(
        {"DeepSpeedConfig: ", "scheduler.params.total_num_steps: must be a number: \"auto\""},
        [&] { make_scheduler(no_total, adamw, {}, 1); });
    EXPECT_EQ(no_total.get_value("scheduler.params.warmup_num_steps").integer(), 1);
}

// Covers 15.hf_ds_config.
TEST(MakeScheduler, RejectsInvalidSchedulerSections) {
    const auto refused = [](const char* type, const Tree& params,
                            std::initializer_list<const char*> parts) {
        expect_error<ValueError>(parts, [&] { course(type, params, 1); });
    };
    refused("Linear", Tree::map(),
            {"DeepSpeedConfig: ", "scheduler.type: must be WarmupLR, ", ": 'Linear'"});
    refused("WarmupLR", {{"warmup_type", "slow"}},
            {"DeepSpeedConfig: ", "scheduler.params.warmup_type: must be \"log\" or \"linear\""});
    refused("WarmupLR", {{"warmup_num_steps", 0}},
            {"DeepSpeedConfig: ", "warmup_num_steps: must be an integer from 1 to 10^15: 0"});
    refused("WarmupLR", {{"total_num_steps", 5}},
            {"DeepSpeedConfig: ", "total_num_steps: WarmupLR has no such option"});
    refused("WarmupLR", {{"last_batch_iteration", 5}},
            {"DeepSpeedConfig: ", "last_batch_iteration: must be -1; to resume, load"});
    refused("WarmupDecayLR", Tree::map(), {"DeepSpeedConfig: ", "total_num_steps: must be given"});
    refused("OneCycle", {{"cycle_max_lr", 1}},
            {"DeepSpeedConfig: ", "cycle_min_lr: must be given"});
    refused("OneCycle", {{"cycle_min_lr", 1}, {"cycle_max_lr", 1}, {"cycle_first_step_size", 0}},
            {"DeepSpeedConfig: ", "cycle_first_step_size: must be above 0"});
}

// Covers 15.is_train_batch_min, 15.train_batch_size, 15.gradient_clipping.
TEST(FillDeepSpeedConfig, ComputesBatchSizesAndRejectsLoadersWithoutABatchSize) {
    const DeepSpeedObjects objects{.batch_sizes = {4, 16}, .data_parallel_size = 3};
    DeepSpeedPlugin smallest = resolved_plugin({.gradient_accumulation_steps = 2});
    fill_deepspeed_config(smallest, objects);
    const DeepSpeedConfig& config = *smallest.hf_ds_config;
    EXPECT_EQ(config.get_value("train_micro_batch_size_per_gpu").integer(), 4);
    EXPECT_EQ(config.get_value("train_batch_size").integer(), 4 * 2 * 3);
    EXPECT_EQ(config.get_value("gradient_clipping").number(), 1);
    EXPECT_EQ(smallest.gradient_clipping, 1);
    DeepSpeedPlugin largest = resolved_plugin({.is_train_batch_min = false});
    fill_deepspeed_config(largest, objects);
    EXPECT_EQ(largest.hf_ds_config->get_value("train_batch_size").integer(), 16 * 3);
    DeepSpeedPlugin without = resolved_plugin({});
    fill_deepspeed_config(without, {.has_model = true});  // a loader can be prepared later
    EXPECT_TRUE(without.hf_ds_config->is_auto("train_micro_batch_size_per_gpu"));
    expect_error<ValueError>({"prepare: a loader has no batch size"}, [&] {
        fill_deepspeed_config(without, {.batch_sizes = {std::nullopt}});
    });
}

// Covers 15.train_batch_size.
TEST(FillDeepSpeedConfig, RejectsInconsistentBatchSizes) {
    const auto plugin = [](int total) {
        return resolved_plugin({.hf_ds_config = Tree{{"train_batch_size", total},
                                                     {"train_micro_batch_size_per_gpu", 4},
                                                     {"gradient_accumulation_steps", 2},
                                                     {"zero_optimization", {{"stage", 1}}}}});
    };
    DeepSpeedPlugin right = plugin(24);
    EXPECT_NO_THROW(fill_deepspeed_config(right, {.data_parallel_size = 3}));
    DeepSpeedPlugin wrong = plugin(32);
    expect_error<ValueError>(
        {"prepare: the DeepSpeed configuration: train_batch_size is 32, but must be "
         "train_micro_batch_size_per_gpu * gradient_accumulation_steps * processes = 4 * 2 * 3 = "
         "24"},
        [&] { fill_deepspeed_config(wrong, {.data_parallel_size = 3}); });
}

// Covers 15.auto.
TEST(FillDeepSpeedConfig, ComputesBucketSizesFromTheHiddenSizeAndRejectsOtherAutoValues) {
    const Tree automatic = {{"zero_optimization",
                             {{"stage", 3},
                              {"reduce_bucket_size", "auto"},
                              {"stage3_prefetch_bucket_size", "auto"},
                              {"stage3_param_persistence_threshold", "auto"},
                              {"stage3_max_live_parameters", 1e9}}}};
    DeepSpeedPlugin plugin = resolved_plugin({.hf_ds_config = automatic});
    nn::Gpt gpt({.vocab_size = 8, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 30});
    EXPECT_EQ(hidden_size_of(gpt), 30);
    fill_deepspeed_config(plugin, {.has_model = true, .hidden_size = hidden_size_of(gpt)});
    const Tree zero = plugin.hf_ds_config->get_value("zero_optimization");
    EXPECT_EQ(zero["reduce_bucket_size"].integer(), 900);
    EXPECT_EQ(zero["stage3_prefetch_bucket_size"].integer(), 810);
    EXPECT_EQ(zero["stage3_param_persistence_threshold"].integer(), 300);
    DeepSpeedPlugin unknown = resolved_plugin({.hf_ds_config = automatic});
    expect_error<ValueError>({"prepare: ", "zero_optimization.reduce_bucket_size, ",
                              "\"auto\" needs a model with a known hidden size; write numbers"},
                             [&] { fill_deepspeed_config(unknown, {.has_model = true}); });
    DeepSpeedPlugin other = resolved_plugin(
        {.hf_ds_config = Tree{{"zero_optimization", {{"stage", 1}, {"round_robin", "auto"}}}}});
    expect_error<ValueError>(
        {"the DeepSpeed configuration: zero_optimization.round_robin: 'auto' cannot be replaced"},
        [&] { fill_deepspeed_config(other, {.has_model = true}); });
    nn::Linear linear(2, 2);
    EXPECT_EQ(hidden_size_of(linear), std::nullopt);
}

// Covers 15.hf_ds_config, 15.engine.
TEST(FillDeepSpeedConfig, RejectsObjectsThatAreGivenTwiceOrAreMissing) {
    const DummyOptim optimizer({parameter()});
    const DummyScheduler scheduler, callable{.lr_scheduler_callable = [](optim::Optimizer&) {
        return std::unique_ptr<optim::Scheduler>();
    }};
    const auto refused = [](const Tree& sections, const DeepSpeedObjects& objects,
                            const char* text) {
        Tree config = sections;
        config.set("zero_optimization", {{"stage", 1}});
        DeepSpeedPlugin plugin = resolved_plugin({.hf_ds_config = config});
        if (text == nullptr) return fill_deepspeed_config(plugin, objects);
        expect_error<ValueError>({"prepare: the DeepSpeed configuration: ", text},
                                 [&] { fill_deepspeed_config(plugin, objects); });
    };
    const Tree with_optimizer = {{"optimizer", {{"type", "AdamW"}}}},
               with_scheduler = {{"scheduler", {{"type", "WarmupLR"}}}};
    refused(with_optimizer, {.has_optimizer = true},
            "remove the section optimizer, or use a Dummy");
    refused(Tree::map(), {.dummy_optim = &optimizer}, "a DummyOptim needs the section optimizer");
    refused(with_scheduler, {.has_scheduler = true},
            "remove the section scheduler, or use a Dummy");
    refused(Tree::map(), {.dummy_scheduler = &scheduler}, "a DummyScheduler needs the section");
    refused(with_optimizer, {.has_scheduler = true, .dummy_optim = &optimizer},
            "a DummyOptim for the section optimizer can only be used with a DummyScheduler");
    refused(with_optimizer, {.dummy_optim = &optimizer, .dummy_scheduler = &callable}, nullptr);
    refused(with_scheduler, {.has_optimizer = true, .dummy_scheduler = &scheduler}, nullptr);
}

}  // namespace
}  // namespace axle::accel
