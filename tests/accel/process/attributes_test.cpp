// Tests the attributes of Accelerator and the options of prepare(), unwrap_model(), free_memory()
// and autocast().
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "nn/layers/layers.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/environment_variable.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::expect_same_bits;
using tests::on_ranks;
using tests::samples;
using tests::SmallNet;
using Group = std::shared_ptr<dist::ProcessGroup>;

// Covers 2.process_index, 2.local_process_index, 2.use_distributed, 2.is_main_process,
// 2.is_local_main_process, 2.is_last_process, 2.multi_device, 2.should_save_model, 2.num_processes.
TEST(Accelerator, ReturnsRankAndWorldSizeOnOneProcess) {
    const Accelerator alone({.cpu = true});
    EXPECT_EQ(alone.process_index(), 0);
    EXPECT_EQ(alone.local_process_index(), 0);
    EXPECT_EQ(alone.num_processes(), 1);
    EXPECT_FALSE(alone.use_distributed());
    EXPECT_TRUE(alone.is_main_process());
    EXPECT_TRUE(alone.is_local_main_process());
    EXPECT_TRUE(alone.is_last_process());
    EXPECT_TRUE(alone.should_save_model());
    EXPECT_FALSE(alone.multi_device());
}

// Covers 2.process_index, 2.local_process_index, 2.use_distributed, 2.is_main_process,
// 2.is_local_main_process, 2.is_last_process, 2.num_processes.
TEST(Accelerator, ReturnsRankAndWorldSizeOnSeveralProcesses) {
    on_ranks(3, [](const Group& group) {
        const Accelerator one({.cpu = true, .process_group = group});
        EXPECT_EQ(one.process_index(), group->rank());
        EXPECT_EQ(one.local_process_index(), group->rank());
        EXPECT_EQ(one.num_processes(), 3);
        EXPECT_TRUE(one.use_distributed());
        EXPECT_EQ(one.is_main_process(), group->rank() == 0);
        EXPECT_EQ(one.is_local_main_process(), group->rank() == 0);
        EXPECT_EQ(one.is_last_process(), group->rank() == 2);
    });
}

// Covers 2.scaler, 2.mixed_precision, 8.bf16, 2.native_amp.
TEST(Accelerator, ReturnsTheScalerOnlyInFp16AndWhetherPrecisionIsMixed) {
    {
        Accelerator plain({.mixed_precision = "no"});
        EXPECT_FALSE(plain.native_amp());
        EXPECT_EQ(plain.scaler(), nullptr);
    }
    {
        Accelerator half({.mixed_precision = "bf16"});
        EXPECT_TRUE(half.native_amp());
        EXPECT_EQ(half.scaler(), nullptr);
    }
    Accelerator scaled({.mixed_precision = "fp16", .cpu = true});
    EXPECT_TRUE(scaled.native_amp());
    ASSERT_NE(scaled.scaler(), nullptr);
}

// Covers 2.rng_types, 1.rng_types, 2.project_dir, 1.logging_dir, 1.project_dir, 2.logging_dir,
// 2.step_scheduler_with_optimizer, 2.ddp_handler.
TEST(Accelerator, ReturnsTheGivenOptionsAndRejectsUnknownRngTypes) {
    const Accelerator accelerator({.rng_types = {"torch"},
                                   .project_dir = "run",
                                   .step_scheduler_with_optimizer = false,
                                   .ddp_kwargs = {.bucket_cap_mb = 3}});
    EXPECT_EQ(accelerator.options().rng_types, std::vector<std::string>{"torch"});
    EXPECT_FALSE(accelerator.options().step_scheduler_with_optimizer);
    EXPECT_EQ(accelerator.options().ddp_kwargs.bucket_cap_mb, 3);
    EXPECT_EQ(accelerator.project_dir(), "run");
    EXPECT_EQ(accelerator.logging_dir(), "run");
    EXPECT_EQ(Accelerator({.project_dir = "run", .logging_dir = "logs"}).logging_dir(), "logs");
    EXPECT_THROW(Accelerator({.rng_types = {"xla"}}), ValueError);
}

// Covers 2.step, 2.sync_gradients, 2.gradient_accumulation_steps, 2.gradient_state,
// 6.GradientState.
TEST(GradientState, DescribesItsOptionsAndTheInnermostRunningLoop) {
    data::DataLoader outer(samples(5), {.batch_size = 2}), inner(samples(3), {.batch_size = 3});
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    accelerator.prepare(outer, inner);
    const auto outside = accelerator.gradient_state();
    EXPECT_TRUE(outside.sync_gradients);
    EXPECT_EQ(outside.num_steps, 2);
    EXPECT_TRUE(outside.sync_with_dataloader);
    EXPECT_FALSE(outside.in_dataloader());
    EXPECT_FALSE(outside.end_of_dataloader);
    EXPECT_EQ(outside.remainder, -1);
    EXPECT_EQ(accelerator.step(), 0);
    std::vector<std::int64_t> steps;
    std::vector<bool> ends;
    for (auto& batch : outer) {
        static_cast<void>(batch);
        const auto scope = accelerator.accumulate();
        steps.push_back(accelerator.step());
        for (auto& other : inner) {
            static_cast<void>(other);
            const auto state = accelerator.gradient_state();
            EXPECT_EQ(state.active_dataloader, &inner);
            EXPECT_TRUE(state.end_of_dataloader);
        }
        const auto state = accelerator.gradient_state();
        EXPECT_EQ(state.active_dataloader, &outer);
        EXPECT_EQ(state.remainder, 1);
        EXPECT_EQ(state.sync_gradients, accelerator.sync_gradients());
        ends.push_back(state.end_of_dataloader);
    }
    EXPECT_EQ(steps, std::vector<std::int64_t>({1, 2, 0}));
    EXPECT_EQ(ends, std::vector<bool>({false, false, true}));

    Accelerator plain({.gradient_accumulation_plugin = {{.sync_with_dataloader = false}}});
    EXPECT_FALSE(plain.gradient_state().sync_with_dataloader);
}

// Covers 2.sync_gradients, 5.step, 5.zero_grad.
TEST(SetSyncGradients, ControlsWhetherOptimizersStep) {
    SmallNet net;
    optim::SGD sgd(net.parameters(), {.lr = 1});
    Accelerator accelerator;
    accelerator.prepare(net, sgd);
    net(ones({2, 4})).sum().backward();
    const Tensor before = net.in.weight.detach().clone();
    accelerator.set_sync_gradients(false);
    EXPECT_FALSE(accelerator.sync_gradients());
    sgd.step();
    sgd.zero_grad();
    expect_same_bits(net.in.weight.detach(), before);
    EXPECT_TRUE(net.in.weight.grad().defined());
    accelerator.set_sync_gradients(true);
    sgd.step();
    EXPECT_NE(net.in.weight.to_vector(), before.to_vector());
    accelerator.set_sync_gradients(false);
    {
        const auto scope = accelerator.accumulate(net);  // sets sync_gradients() again
        EXPECT_TRUE(accelerator.sync_gradients());
    }
}

// Covers 3.prepare_model, 3.prepare_optimizer, 3.prepare_scheduler, 3.prepare_data_loader.
TEST(Prepare, PreparesObjectsOneByOneAndIgnoresPreparedObjects) {
    SmallNet net;
    optim::SGD sgd(net.parameters(), {.lr = 1});
    optim::StepLR schedule(sgd, 1, 0.5);
    data::DataLoader loader(samples(4));
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    static_assert(std::is_same_v<decltype(accelerator.prepare_model(net)), SmallNet&>);
    EXPECT_EQ(&accelerator.prepare_scheduler(schedule), &schedule);
    EXPECT_EQ(&accelerator.prepare_model(net), &net);
    EXPECT_EQ(&accelerator.prepare_optimizer(sgd), &sgd);
    EXPECT_EQ(&accelerator.prepare_data_loader(loader), &loader);
    const auto hooks = net.hooks();
    EXPECT_NE(hooks, nullptr);
    accelerator.prepare(net, sgd, schedule, loader);
    EXPECT_EQ(net.hooks(), hooks);
    const Tensor before = net.in.weight.detach().clone();
    const auto scope = accelerator.accumulate(net);
    accelerator.backward(net(ones({2, 4})).sum());
    sgd.step();
    schedule.step();
    expect_same_bits(net.in.weight.detach(), before);
    EXPECT_EQ(schedule.last_epoch(), 0);
}

// Covers 3.prepare_model.
TEST(Prepare, DoesNotAverageGradientsOfAnEvaluationModel) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator({.cpu = true, .process_group = group});
        for (const bool evaluation_mode : {false, true}) {
            Tensor w = full({2}, group->rank() + 1.0, {.requires_grad = true});
            nn::Embedding table(2, 1);
            table.weight = full({2, 1}, group->rank() + 1.0, {.requires_grad = true});
            accelerator.prepare_model(table, {}, evaluation_mode);
            // If gradients are averaged, prepare() broadcasts the values of rank 0.
            EXPECT_EQ(table.weight.to_vector()[0], evaluation_mode ? group->rank() + 1.0 : 1.0);
            sum(mul(table.weight, group->rank() * 2.0)).backward();
            EXPECT_EQ(table.weight.grad().to_vector()[0],
                      evaluation_mode ? group->rank() * 2.0 : 1.0);
        }
    });
}

// Covers 1.device_placement, 3.prepare.
TEST(Prepare, AcceptsOneDevicePlacementPerObjectAndRejectsOtherNumbers) {
    SmallNet net;
    optim::SGD sgd(net.parameters(), {.lr = 1});
    data::DataLoader loader(samples(4));
    Accelerator accelerator;
    auto [model, optimizer, batches] = accelerator.prepare({false, true, false}, net, sgd, loader);
    EXPECT_EQ(&model, &net);
    EXPECT_EQ(&optimizer, &sgd);
    EXPECT_EQ(&batches, &loader);
    EXPECT_EQ(net.in.weight.device(), Device::cpu());  // the model was not moved
    EXPECT_NE(net.hooks(), nullptr);
    for (auto& batch : loader) EXPECT_EQ(batch["x"].tensor().device(), Device::cpu());
    SmallNet other;
    expect_error<ValueError>(
        {"prepare: device_placement needs one value for each object: 1 values, 2 objects"},
        [&] { accelerator.prepare({true}, other, sgd); });
    EXPECT_EQ(other.hooks(), nullptr);
}

// Covers 3.verify_device_map, 31.verify_device_map, 27.ACCELERATE_BYPASS_DEVICE_MAP.
TEST(DeviceMaps, AreRejectedOnSeveralProcessesUnlessBypassed) {
    SmallNet whole;
    EXPECT_FALSE(Accelerator().verify_device_map(whole));
    on_ranks(2, [](const Group& group) {
        SmallNet spread;
        spread.out.weight = empty(spread.out.weight.shape(), {.device = Device::meta()});
        Accelerator accelerator({.device_placement = false, .cpu = true, .process_group = group});
        EXPECT_TRUE(accelerator.verify_device_map(spread));
        expect_error<ValueError>({"prepare: a model that is spread over several devices"},
                                 [&] { accelerator.prepare(spread); });
        EXPECT_EQ(spread.hooks(), nullptr);
    });
    const tests::EnvironmentVariable bypass("ACCELERATE_BYPASS_DEVICE_MAP", "true");
    on_ranks(2, [](const Group& group) {
        SmallNet spread;
        spread.requires_grad_(false);
        spread.out.weight = empty(spread.out.weight.shape(), {.device = Device::meta()});
        Accelerator accelerator({.device_placement = false, .cpu = true, .process_group = group});
        EXPECT_NO_THROW(accelerator.prepare(spread));
        EXPECT_NE(spread.hooks(), nullptr);
    });
}

// Covers 3.unwrap_model, 8.keep_fp32_wrapper, 8.model.
TEST(UnwrapModel, ReturnsTheModelAndCanRemoveMixedPrecision) {
    SmallNet net;
    Accelerator accelerator({.mixed_precision = "bf16"});
    accelerator.prepare(net);
    EXPECT_EQ(&accelerator.unwrap_model(net), &net);
    net(ones({2, 4}));
    EXPECT_EQ(net.hidden_dtype, bf16);
    EXPECT_EQ(&accelerator.unwrap_model(net, false), &net);
    net(ones({2, 4}));
    EXPECT_EQ(net.hidden_dtype, f32);
    SmallNet plain;
    EXPECT_EQ(&accelerator.unwrap_model(plain, false), &plain);
    EXPECT_EQ(plain.hooks(), nullptr);
    const SmallNet& constant = net;
    EXPECT_EQ(&accelerator.unwrap_model(constant), &net);
}

// Covers 3.free_memory, 3.clear.
TEST(FreeMemory, DestroysItsArgumentsAndRemovesAllHooks) {
    auto net = std::make_unique<SmallNet>();
    auto sgd = std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions{.lr = 1});
    auto shared = std::make_shared<SmallNet>();
    std::optional<data::DataLoader> loader(samples(4));
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    accelerator.prepare(*net, *sgd, *shared, *loader);
    {
        const auto scope = accelerator.accumulate();
        EXPECT_EQ(accelerator.step(), 1);
    }
    accelerator.free_memory(net, sgd);
    EXPECT_EQ(net, nullptr);
    EXPECT_EQ(sgd, nullptr);
    EXPECT_EQ(accelerator.step(), 0);
    EXPECT_EQ(shared->hooks(), nullptr);  // all hooks are removed
    accelerator.prepare(*shared, *loader);
    accelerator.clear(shared, loader);
    EXPECT_EQ(shared, nullptr);
    EXPECT_FALSE(loader);
    EXPECT_NO_THROW(accelerator.clear());
}

// Covers 3.autocast, 8.AutocastKwargs.
TEST(AcceleratorAutocast, CanBeSwitchedOffAndOnInNestedScopes) {
    const Tensor a = ones({2, 2});
    const auto dtype = [&] { return matmul(a, a).dtype(); };
    Accelerator accelerator({.mixed_precision = "bf16"});
    {
        const auto on = accelerator.autocast();
        EXPECT_EQ(dtype(), bf16);
        {
            const auto off = accelerator.autocast({.enabled = false});
            EXPECT_EQ(dtype(), f32);
            {
                const auto again = accelerator.autocast();
                EXPECT_EQ(dtype(), bf16);
            }
            EXPECT_EQ(dtype(), f32);
        }
        EXPECT_EQ(dtype(), bf16);
    }
    EXPECT_EQ(dtype(), f32);
}

// Covers 3.autocast, 8.AutocastKwargs.
TEST(AcceleratorAutocast, AppliesAutocastKwargsToModelsAndScopes) {
    const Tensor a = ones({2, 2});
    SmallNet net;
    Accelerator accelerator(
        {.mixed_precision = "bf16", .autocast_kwargs = accel::AutocastKwargs{.enabled = false}});
    accelerator.prepare(net);
    net(ones({2, 4}));
    EXPECT_EQ(net.hidden_dtype, f32);
    {
        const auto off = accelerator.autocast();
        EXPECT_EQ(matmul(a, a).dtype(), f32);
    }
    const auto on = accelerator.autocast({});
    EXPECT_EQ(matmul(a, a).dtype(), bf16);
}

// Covers 3.autocast, 8.AutocastKwargs.
TEST(AcceleratorAutocast, KeepsTheOuterScopeWithoutMixedPrecision) {
    const Accelerator accelerator({.mixed_precision = "no"});
    const AutocastGuard own(bf16);
    const auto scope = accelerator.autocast({.enabled = false});
    EXPECT_EQ(autocast_dtype(), bf16);
}

// Covers 8.AutocastKwargs, 8.autocast.
TEST(AcceleratorAutocast, ControlsTheWeightCache) {
    Tensor w = ones({2}, {.requires_grad = true});
    const auto kept = [&] {
        const Tensor a = autocast(w), b = autocast(w);
        return a.impl()->storage == b.impl()->storage;
    };
    const Accelerator accelerator({.mixed_precision = "bf16"});
    const auto on = accelerator.autocast();
    EXPECT_TRUE(kept());
    {
        const auto without = accelerator.autocast({.cache_enabled = false});
        EXPECT_FALSE(kept());
        const auto inner = accelerator.autocast();  // does not change the setting
        EXPECT_FALSE(kept());
    }
    EXPECT_TRUE(kept());
}

// Covers 8.model, 31.loss.
TEST(PreparedModel, ReturnsF32UnlessConvertOutputsToFp32IsFalse) {
    const Tensor x = ones({2, 4});
    for (const char* precision : {"bf16", "fp16"})
        for (const bool convert : {true, false}) {
            SmallNet net;
            Accelerator accelerator(
                {.mixed_precision = precision, .cpu = true, .convert_outputs_to_fp32 = convert});
            accelerator.prepare(net);
            const DType half = precision == std::string("bf16") ? bf16 : f16;
            EXPECT_EQ(net(x).dtype(), convert ? f32 : half);
        }
}

// Covers 32.parameters.
TEST(Prepare, DoesNotChangeParameters) {
    SmallNet net;
    const std::vector<Tensor> parameters = net.parameters();
    const Tensor weight = net.in.weight.detach().clone();
    Accelerator accelerator({.cpu = true});
    accelerator.prepare(net);
    ASSERT_EQ(net.parameters().size(), parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i)
        EXPECT_TRUE(net.parameters()[i].is_same(parameters[i])) << i;
    expect_same_bits(net.in.weight.detach(), weight);
}

}  // namespace
}  // namespace axle
