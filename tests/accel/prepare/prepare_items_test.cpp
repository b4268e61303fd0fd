// Tests the placeholders DummyOptim and DummyScheduler, DeepSpeed's auto values, selected plugins
// and optimizers of adapters in prepare(), and get_state_dict() with ZeRO stage 3.
#include "accel/prepare/prepare_items.h"

#include <memory>
#include <string>

#include "accel/accelerator.h"
#include "accel/prepare/deepspeed_objects.h"
#include "core/autograd/local_part.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "nn/adapters/lora.h"
#include "nn/layers/linear.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/dist/sharding/sharded_models.h"
#include "tests/log_capture.h"

namespace axle::accel {
namespace {

using tests::expect_error;
using tests::Group;
using tests::on_ranks;

AcceleratorOptions with_config(Tree config, const Group& group = nullptr) {
    if (!config.contains("zero_optimization")) config.set("zero_optimization", {{"stage", 0}});
    AcceleratorOptions options{.cpu = true, .deepspeed_plugin = {{.hf_ds_config = config}}};
    options.process_group = group;
    return options;
}

Tensor loss_on_ones(nn::Linear& model) {
    const Tensor y = model(ones({4, 2}));
    return mean(y * y);
}

// Covers 5.DummyOptim, 5.DeepSpeedOptimizerWrapper, 15.engine.
TEST(DummyOptim, IsReplacedByTheOptimizerOfTheConfiguration) {
    nn::Linear linear(2, 3);
    nn::Linear expected = linear.clone();
    Accelerator accelerator(with_config(
        {{"optimizer", {{"type", "SGD"}, {"params", {{"lr", "auto"}, {"momentum", 0.5}}}}}}));
    DummyOptim dummy(linear.parameters(), 0.25);
    auto [model, optimizer] = accelerator.prepare(linear, dummy);
    optim::SGD sgd(expected.parameters(), {.lr = 0.25, .momentum = 0.5});
    for (int step = 0; step < 3; ++step) {
        accelerator.backward(loss_on_ones(model));
        optimizer.step();
        optimizer.zero_grad();
        loss_on_ones(expected).backward();
        sgd.step();
        sgd.zero_grad();
    }
    EXPECT_NE(dynamic_cast<optim::SGD*>(&*dummy), nullptr);
    tests::expect_same_bits(linear.weight.detach(), expected.weight.detach());
    EXPECT_EQ(accelerator.options()
                  .deepspeed_plugin->hf_ds_config->get_value("optimizer.params.lr")
                  .number(),
              0.25);
}

// Covers 5.DummyOptim.
TEST(DummyOptimAndDummyScheduler, CallTheirCallablesIfThereIsNoConfiguration) {
    nn::Linear linear(2, 3);
    Accelerator accelerator({.cpu = true});
    DummyOptim dummy(linear.parameters());
    dummy.optimizer_callable = [&] {
        return std::make_unique<optim::SGD>(linear.parameters(), optim::SGDOptions{.lr = 0.5});
    };
    DummyScheduler halving;
    halving.lr_scheduler_callable = [](optim::Optimizer& optimizer) {
        return std::make_unique<optim::StepLR>(optimizer, 1, 0.5);
    };
    auto [model, optimizer, schedule] = accelerator.prepare(linear, dummy, halving);
    accelerator.backward(loss_on_ones(model));
    optimizer.step();
    schedule.step();
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0.25);
    EXPECT_EQ(schedule.get_last_lr()[0], 0.25);
}

// Covers 5.DummyOptim.
TEST(DummyOptimAndDummyScheduler, ThrowBeforePrepareAndWithoutAConfiguration) {
    nn::Linear linear(2, 3);
    Accelerator accelerator({.cpu = true});
    DummyOptim dummy(linear.parameters());
    DummyScheduler schedule;
    expect_error<UsageError>({"DummyOptim: there is no optimizer yet; call prepare() first"},
                             [&] { dummy.step(); });
    expect_error<UsageError>({"DummyScheduler: there is no schedule yet; call prepare() first"},
                             [&] { schedule.step(); });
    expect_error<UsageError>({"prepare: a DummyOptim needs a DeepSpeed configuration with the "
                              "section optimizer, or an optimizer_callable"},
                             [&] { accelerator.prepare(linear, dummy); });
    expect_error<ValueError>(
        {"prepare: a DummyScheduler needs exactly one optimizer in the same call: 0 are given"},
        [&] { accelerator.prepare(linear, schedule); });
    optim::SGD sgd(linear.parameters(), {.lr = 1});
    expect_error<UsageError>({"prepare: a DummyScheduler needs a DeepSpeed configuration with the "
                              "section scheduler, or an lr_scheduler_callable"},
                             [&] { accelerator.prepare(sgd, schedule); });
}

TEST(DummyScheduler, KeepsItsScheduleIfItIsPreparedAgainAlone) {
    nn::Linear linear(2, 3);
    optim::SGD sgd(linear.parameters(), {.lr = 0.5});
    Accelerator accelerator({.cpu = true});
    DummyScheduler halving;
    halving.lr_scheduler_callable = [](optim::Optimizer& optimizer) {
        return std::make_unique<optim::StepLR>(optimizer, 1, 0.5);
    };
    accelerator.prepare(linear, sgd, halving);
    const optim::Scheduler* const schedule = halving.created.get();
    accelerator.prepare(halving);
    EXPECT_EQ(halving.created.get(), schedule);
    halving.step();
    EXPECT_EQ(sgd.param_groups()[0].lr, 0.25);
}

// Covers 5.DummyOptim, 15.engine.
TEST(DummyScheduler, AdvancesOncePerUpdateOnSeveralProcesses) {
    const Tree config = {
        {"scheduler",
         {{"type", "WarmupLR"},
          {"params", {{"warmup_num_steps", 8}, {"warmup_type", "linear"}, {"warmup_max_lr", 1}}}}}};
    on_ranks(2, [&](const Group& group) {
        manual_seed(1);
        nn::Linear linear(2, 3);
        optim::SGD sgd(linear.parameters(), {.lr = 0.5});
        Accelerator accelerator(with_config(config, group));
        DummyScheduler warmup;
        auto [model, optimizer, schedule] = accelerator.prepare(linear, sgd, warmup);
        for (int step = 0; step < 4; ++step) {
            accelerator.backward(loss_on_ones(model));
            optimizer.step();
            schedule.step();
            optimizer.zero_grad();
        }
        EXPECT_EQ(schedule->last_epoch(), 4);
        EXPECT_EQ(schedule.get_last_lr()[0],
                  0.375);  // 3/8, because the rate is 0 at epochs 0 and 1
    });
}

data::DataLoader loader_of(std::int64_t samples, std::int64_t batch_size) {
    return data::DataLoader(data::TensorDataset(Tree{{"x", ones({samples, 2})}}),
                            {.batch_size = batch_size});
}

// Covers 15.is_train_batch_min, 15.train_batch_size, 15.auto.
TEST(Prepare, FillsAutoValuesOfTheDeepSpeedConfiguration) {
    on_ranks(2, [&](const Group& group) {
        for (const bool splits : {false, true}) {
            SCOPED_TRACE(splits);
            AcceleratorOptions options =
                with_config({{"train_batch_size", "auto"},
                             {"train_micro_batch_size_per_gpu", "auto"},
                             {"gradient_accumulation_steps", 3},
                             {"zero_optimization",
                              {{"stage", 3}, {"stage3_param_persistence_threshold", "auto"}}}},
                            group);
            options.dataloader_config.emplace().split_batches = splits;
            Accelerator accelerator(std::move(options));
            manual_seed(1);
            nn::Gpt gpt(
                {.vocab_size = 8, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 30});
            accelerator.prepare(gpt);
            const DeepSpeedConfig& config = *accelerator.options().deepspeed_plugin->hf_ds_config;
            EXPECT_EQ(
                config.get_value("zero_optimization.stage3_param_persistence_threshold").number(),
                300);
            EXPECT_TRUE(config.is_auto("train_batch_size"));  // no loader is prepared yet
            data::DataLoader train = loader_of(32, 4), test = loader_of(32, 8);
            accelerator.prepare(train, test);
            const std::int64_t micro = splits ? 2 : 4;
            EXPECT_EQ(config.get_value("train_micro_batch_size_per_gpu").number(), micro);
            EXPECT_EQ(config.get_value("train_batch_size").number(), micro * 3 * 2);
        }
    });
}

// Covers 15.multiple.
TEST(Prepare, UsesTheSelectedDeepSpeedPluginAndRejectsUnknownNames) {
    on_ranks(2, [&](const Group& group) {
        AcceleratorOptions options{
            .cpu = true,
            .deepspeed_plugins = {{"student", {.gradient_clipping = 1e-3, .zero_stage = 0}},
                                  {"teacher", {.gradient_clipping = 0.0, .zero_stage = 3}}}};
        options.process_group = group;
        Accelerator accelerator(std::move(options));
        nn::Linear student(2, 3), teacher(2, 3);
        optim::SGD sgd(student.parameters(), {.lr = 1});
        accelerator.prepare(student, sgd);  // gives all ranks the weights of rank 0
        const Tensor before = student.weight.detach().clone();
        accelerator.select_deepspeed_plugin("teacher");
        accelerator.prepare(teacher);
        EXPECT_FALSE(autograd::is_sharded(student.weight));
        EXPECT_TRUE(autograd::is_sharded(teacher.weight));
        accelerator.backward(loss_on_ones(student) * 1e3);
        sgd.step();  // clips with the plugin with which sgd was prepared
        const Tensor change = student.weight.detach() - before;
        EXPECT_LE(sum(change * change).item(), 1.01e-6);
        expect_error<ValueError>({"select_deepspeed_plugin: there is no plugin 'judge'"},
                                 [&] { accelerator.select_deepspeed_plugin("judge"); });
    });
}

// Covers 15.zero3_save_16bit_model.
TEST(Accelerator, ReturnsTheStateDictOfZeroStage3In16BitsOnRequest) {
    on_ranks(2, [&](const Group& group) {
        for (const bool in_16_bits : {false, true}) {
            AcceleratorOptions options{
                .mixed_precision = "bf16",
                .cpu = true,
                .deepspeed_plugin = {{.zero_stage = 3, .zero3_save_16bit_model = in_16_bits}}};
            options.process_group = group;
            Accelerator accelerator(std::move(options));
            nn::Linear linear(2, 3);
            accelerator.prepare(linear);
            for (const auto& [name, tensor] : accelerator.get_state_dict(linear))
                EXPECT_EQ(tensor.dtype(), in_16_bits ? bf16 : f32) << name;
        }
    });
}

TEST(PrepareOptimizer, WarnsOfAnOptimizerWhoseParametersAreAllFrozen) {
    nn::Linear first(2, 3), second(3, 1);
    optim::SGD early(first.parameters(), {.lr = 0.5}), later(second.parameters(), {.lr = 0.5});
    second.requires_grad_(false);
    Accelerator accelerator({.cpu = true});
    tests::LogCapture log;
    accelerator.prepare(first, second, early, later);
    EXPECT_THAT(log.lines(),
                testing::Contains(testing::StartsWith(
                    "prepare: none of the 2 parameters of an optimizer requires a gradient")));
}

TEST(PrepareOptimizer, RejectsAnOptimizerWithoutTheParametersOfTheAdapter) {
    struct Net : nn::Model<Net> {
        nn::Linear first{2, 3}, head{3, 1};
        Tensor forward(const Tensor& x) { return head(first(x)); }
        void visit(nn::Visitor& v) override { v("first", first), v("head", head); }
    } net;
    optim::SGD early(net.parameters(), {.lr = 0.5});
    // The head stays trainable, so that the optimizer has parameters that require a gradient.
    nn::add_lora(net, {.target_modules = {"first"}, .modules_to_save = {"head"}});
    Accelerator accelerator({.cpu = true});
    expect_error<UsageError>({"prepare: no optimizer has the 2 parameters of the model's adapter"},
                             [&] { accelerator.prepare(net, early); });
    optim::SGD later(nn::trainable_parameters(net), {.lr = 0.5});
    EXPECT_NO_THROW(accelerator.prepare(net, later));
}

TEST(PrepareOptimizer, AcceptsAnAdapterWhoseOptimizerIsPreparedByAnotherCall) {
    nn::Linear value(2, 1);
    struct Net : nn::Model<Net> {
        nn::Linear first{2, 3};
        Tensor forward(const Tensor& x) { return first(x); }
        void visit(nn::Visitor& v) override { v("first", first); }
    } net;
    nn::add_lora(net, {.target_modules = {"first"}});
    optim::SGD of_adapter(nn::trainable_parameters(net), {.lr = 0.5});
    optim::SGD of_value(value.parameters(), {.lr = 0.5});
    Accelerator accelerator({.cpu = true});
    EXPECT_NO_THROW(accelerator.prepare(net, value, of_value));
    EXPECT_NO_THROW(accelerator.prepare(of_adapter));
}

}  // namespace
}  // namespace axle::accel
