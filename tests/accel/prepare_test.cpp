// Tests prepare() and free_memory(), when prepared optimizers and schedulers step, options of the
// Accelerator, and mixed precision in bf16.
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/environment_variable.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using tests::EnvironmentVariable;
using tests::expect_error;
using tests::samples;
using tests::SmallNet;

struct Objects {
    SmallNet net;
    optim::SGD sgd{net.parameters(), {.lr = 1}};
    optim::StepLR schedule{sgd, 1, 0.5};
    data::DataLoader loader{samples(4)};

    void backward() { net(ones({2, 4})).sum().backward(); }
    bool has_gradients() const { return net.in.weight.grad().defined(); }
    Tensor weight() const { return net.in.weight.detach().clone(); }
};

// Covers 3.prepare.
TEST(Prepare, ReturnsTheSameObjectsInOrder) {
    Objects o;
    Accelerator accelerator;
    auto [model, optimizer, loader, schedule] =
        accelerator.prepare(o.net, o.sgd, o.loader, o.schedule);
    EXPECT_EQ(&model, &o.net);
    EXPECT_EQ(&optimizer, &o.sgd);
    EXPECT_EQ(&loader, &o.loader);
    EXPECT_EQ(&schedule, &o.schedule);
    static_assert(std::is_same_v<decltype(model), SmallNet&>);
    EXPECT_EQ(&accelerator.unwrap_model(model), &o.net);
}

// Covers 3.prepare.
TEST(Prepare, ReturnsASingleObjectWithoutTuple) {
    Objects o;
    Accelerator accelerator;
    static_assert(std::is_same_v<decltype(accelerator.prepare(o.net)), SmallNet&>);
    EXPECT_EQ(&accelerator.prepare(o.net), &o.net);
    EXPECT_NE(o.net.hooks(), nullptr);
}

// Covers 3.prepare.
TEST(Prepare, ThrowsWhenTheReturnedModelIsCopied) {
    SmallNet net;
    Accelerator accelerator;
    expect_error<UsageError>({"module: ", "auto& model = accelerator.prepare(net)"},
                             [&] { auto copy = accelerator.prepare(net); });
}

// Covers 3.prepare.
TEST(Prepare, ReturnsUnknownObjectsUnchanged) {
    Objects o;
    Accelerator accelerator;
    int number = 5;
    std::string text = "s";
    auto [n, model, t] = accelerator.prepare(number, o.net, text);
    EXPECT_EQ(&n, &number);
    EXPECT_EQ(&t, &text);
    EXPECT_EQ(&model, &o.net);
}

// Covers 3.prepare.
TEST(Prepare, ChangesNothingWhenCalledTwice) {
    Objects o;
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    accelerator.prepare(o.net, o.sgd, o.loader, o.schedule);
    const auto hooks = o.net.hooks();
    accelerator.prepare(o.schedule, o.loader, o.sgd, o.net);
    EXPECT_EQ(o.net.hooks(), hooks);
    std::vector<bool> sync;
    for (auto& batch : o.loader) {
        static_cast<void>(batch);
        auto scope = accelerator.accumulate(o.net);
        sync.push_back(accelerator.sync_gradients());
        o.schedule.step();
    }
    EXPECT_EQ(sync, std::vector<bool>({false, true, false, true}));
    EXPECT_EQ(o.schedule.last_epoch(), 2);
}

// Covers 3.prepare.
TEST(Prepare, AcceptsObjectsInReverseOrder) {
    for (const bool reversed : {false, true}) {
        Objects o;
        Accelerator accelerator({.gradient_accumulation_steps = 2});
        if (reversed)
            accelerator.prepare(o.schedule, o.loader, o.sgd, o.net);
        else
            accelerator.prepare(o.net, o.sgd, o.loader, o.schedule);
        const Tensor before = o.weight();
        auto scope = accelerator.accumulate(o.net);
        o.backward();
        o.sgd.step();
        o.schedule.step();
        o.sgd.zero_grad();
        tests::expect_same_bits(o.weight(), before);
        EXPECT_EQ(o.schedule.last_epoch(), 0);
        EXPECT_TRUE(o.has_gradients());
    }
}

TEST(Prepare, PreparesElementsOfRangesAndValuesOfMapsAndRejectsNullElements) {
    std::vector<SmallNet> nets(2);
    std::map<std::string, SmallNet> named;
    named.try_emplace("actor");
    named.try_emplace("critic");
    SmallNet single;
    const std::array<SmallNet*, 1> pointers = {&single};
    SmallNet pair[2];
    std::map<std::string, std::unique_ptr<SmallNet>> owned;
    owned["teacher"] = std::make_unique<SmallNet>();
    std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
    for (SmallNet& net : nets)
        optimizers.push_back(
            std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 1}));
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    auto [all, by_name, list, array, owners, steppers] =
        accelerator.prepare(nets, named, pointers, pair, owned, optimizers);
    EXPECT_EQ(&all, &nets);
    EXPECT_EQ(&steppers, &optimizers);
    for (const SmallNet* net : {&nets[0], &nets[1], &named["actor"], &named["critic"], &single,
                                &pair[0], &pair[1], owned["teacher"].get()})
        EXPECT_NE(net->hooks(), nullptr);
    for (const bool update : {false, true}) {
        const auto scope = accelerator.accumulate(nets[0], nets[1]);
        for (std::size_t i = 0; i < nets.size(); ++i) {
            accelerator.backward(nets[i](ones({2, 4})).sum());
            const Tensor before = nets[i].out.bias.detach().clone();
            optimizers[i]->step();
            EXPECT_EQ(nets[i].out.bias.item() != before.item(), update);
        }
    }
    owned["student"] = nullptr;
    expect_error<UsageError>({"prepare: ", "empty"}, [&] { accelerator.prepare(owned); });
}

// Covers 5.AcceleratedOptimizer, 5.step, 5.zero_grad.
TEST(Prepare, MakesOptimizersAndSchedulersStepOncePerUpdate) {
    Objects o;
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    accelerator.prepare(o.net, o.sgd, o.schedule);
    const Tensor before = o.weight();
    for (const bool update : {false, true}) {
        auto scope = accelerator.accumulate(o.net);
        accelerator.backward(o.net(ones({2, 4})).sum());
        o.sgd.step();
        o.schedule.step();
        o.sgd.zero_grad();
        EXPECT_EQ(o.has_gradients(), !update);
        EXPECT_EQ(o.schedule.last_epoch(), update ? 1 : 0);
        EXPECT_EQ(o.weight().to_vector() == before.to_vector(), !update);
        EXPECT_FALSE(accelerator.optimizer_step_was_skipped());
    }
}

TEST(Accumulate, DoesNotAffectUnpreparedObjects) {
    Objects o;
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    auto scope = accelerator.accumulate();
    ASSERT_FALSE(accelerator.sync_gradients());
    o.backward();
    const Tensor before = o.weight();
    o.sgd.step();
    EXPECT_NE(o.weight().to_vector(), before.to_vector());
    o.sgd.zero_grad();
    EXPECT_FALSE(o.has_gradients());
    o.schedule.step();
    EXPECT_EQ(o.schedule.last_epoch(), 1);
}

// Covers 5.step.
TEST(PreparedScheduler, IgnoresStepsAfterItsEndUntilFreeMemory) {
    Tensor w = ones({1}, {.requires_grad = true});
    optim::SGD sgd({w}, {.lr = 1, .momentum = 0.9});
    optim::OneCycleLR schedule(sgd, 1.0, 3);
    Accelerator accelerator;
    accelerator.prepare(sgd, schedule);
    for (int i = 0; i < 9; ++i) EXPECT_NO_THROW(schedule.step());
    EXPECT_EQ(schedule.last_epoch(), 3);
    accelerator.free_memory();
    EXPECT_THROW(schedule.step(), ValueError);
}

TEST(PreparedObjects, CanBeUsedAfterTheAcceleratorIsDestroyed) {
    Objects o;
    {
        Accelerator accelerator({.mixed_precision = "bf16"});
        accelerator.prepare(o.net, o.sgd, o.loader, o.schedule);
    }
    const Tensor before = o.weight();
    std::int64_t batches = 0;
    for (auto& batch : o.loader) {
        ++batches;
        tests::squared_error(o.net(batch["x"]), batch["y"]).backward();
        o.sgd.step();
        o.schedule.step();
        o.sgd.zero_grad();
    }
    EXPECT_EQ(batches, 4);
    EXPECT_EQ(o.schedule.last_epoch(), 4);
    EXPECT_NE(o.weight().to_vector(), before.to_vector());
}

// Covers 3.free_memory.
TEST(FreeMemory, RemovesHooksFromPreparedObjects) {
    Objects o;
    Accelerator accelerator({.mixed_precision = "bf16", .gradient_accumulation_steps = 2});
    accelerator.prepare(o.net, o.sgd, o.loader, o.schedule);
    {
        auto scope = accelerator.accumulate(o.net);
        EXPECT_FALSE(accelerator.sync_gradients());
    }
    accelerator.free_memory();
    EXPECT_TRUE(accelerator.sync_gradients());
    EXPECT_EQ(o.net.hooks(), nullptr);
    o.backward();
    EXPECT_EQ(o.net.hidden_dtype, f32);
    o.sgd.zero_grad();
    EXPECT_FALSE(o.has_gradients());
    o.schedule.step();
    EXPECT_EQ(o.schedule.last_epoch(), 1);
    for (auto& batch : o.loader) {
        static_cast<void>(batch);
        if (!o.loader.end_of_dataloader()) continue;
        auto scope = accelerator.accumulate();
        EXPECT_FALSE(accelerator.sync_gradients());  // the loader is detached
    }
}

// Covers 27.ACCELERATE_GRADIENT_ACCUMULATION_STEPS, 27.ACCELERATE_MIXED_PRECISION, 31.environment.
TEST(AcceleratorOptions, AreReadFromTheEnvironmentWithTheDocumentedPrecedence) {
    {
        const EnvironmentVariable precision("ACCELERATE_MIXED_PRECISION", "bf16");
        EXPECT_EQ(Accelerator().mixed_precision(), "bf16");
        EXPECT_EQ(Accelerator({.mixed_precision = "no"}).mixed_precision(), "no");
    }
    EXPECT_EQ(Accelerator().mixed_precision(), "no");
    {
        const EnvironmentVariable steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "6");
        EXPECT_EQ(Accelerator().gradient_accumulation_steps(), 6);
        EXPECT_EQ(Accelerator({.gradient_accumulation_steps = 3}).gradient_accumulation_steps(), 6);
        EXPECT_EQ(Accelerator({.gradient_accumulation_plugin =
                                   accel::GradientAccumulationPlugin{.num_steps = 2}})
                      .gradient_accumulation_steps(),
                  2);
    }
    {
        const EnvironmentVariable empty("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "");
        EXPECT_EQ(Accelerator({.gradient_accumulation_steps = 3}).gradient_accumulation_steps(), 3);
    }
}

TEST(AcceleratorOptions, AreRejectedIfInvalid) {
    const auto make = [](AcceleratorOptions options) { Accelerator accelerator(options); };
    expect_error<ValueError>({"Accelerator: mixed_precision must be no, fp16, bf16 or fp8: 'fp4'"},
                             [&] { make({.mixed_precision = "fp4"}); });
    expect_error<ValueError>({"Accelerator: gradient_accumulation_steps must be positive: 0"},
                             [&] { make({.gradient_accumulation_steps = 0}); });
    expect_error<ValueError>(
        {"Accelerator: gradient_accumulation_plugin.num_steps must be positive: -1"},
        [&] { make({.gradient_accumulation_plugin = {{.num_steps = -1}}}); });
    expect_error<UsageError>(
        {"Accelerator: gradient_accumulation_steps and gradient_accumulation_plugin are both given",
         "use one"},
        [&] {
            make({.gradient_accumulation_steps = 2,
                  .gradient_accumulation_plugin = {{.num_steps = 2}}});
        });
    const EnvironmentVariable precision("ACCELERATE_MIXED_PRECISION", "half");
    expect_error<ValueError>({"Accelerator: mixed_precision", "'half'"}, [&] { make({}); });
    for (const char* text : {"two", "2x", "1.5", " 2", "99999999999"}) {
        const EnvironmentVariable steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", text);
        expect_error<ValueError>(
            {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS: must be a 32-bit integer", text},
            [&] { make({.mixed_precision = "no"}); });
    }
    const EnvironmentVariable steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "0");
    expect_error<ValueError>({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS: must be positive: 0"},
                             [&] { make({.mixed_precision = "no"}); });
}

// Covers 3.autocast, 8.bf16, 8.model.
TEST(MixedPrecision, ComputesInBf16AndReturnsF32) {
    SmallNet net;
    net.eval();
    const Tensor x = ones({2, 4});
    const Tensor exact = net(x);
    EXPECT_EQ(net.hidden_dtype, f32);
    Accelerator accelerator({.mixed_precision = "bf16"});
    accelerator.prepare(net);
    const Tensor y = net(x);
    EXPECT_EQ(net.hidden_dtype, bf16);
    EXPECT_EQ(y.dtype(), f32);
    tests::expect_close(y, exact, 2e-2);
    EXPECT_EQ(autocast_dtype(), std::nullopt);
    for (const Tensor& p : net.parameters()) EXPECT_EQ(p.dtype(), f32);
}

// Covers 3.autocast, 8.autocast.
TEST(MixedPrecision, AppliesToAutocastScopesOutsideTheModel) {
    const Tensor a = ones({2, 2});
    Accelerator accelerator({.mixed_precision = "bf16"}), plain;
    {
        const auto scope = accelerator.autocast();
        EXPECT_EQ(matmul(a, a).dtype(), bf16);
        {
            const auto inner = plain.autocast();  // does not change the setting of the outer scope
            EXPECT_EQ(matmul(a, a).dtype(), bf16);
        }
    }
    EXPECT_EQ(matmul(a, a).dtype(), f32);
}

// Covers 8.bf16, 8.PrecisionType.
TEST(MixedPrecision, TrainsWithWeightsAndGradientsInF32) {
    manual_seed(3);
    SmallNet net;
    net.dropout.p = 0;
    optim::AdamW adamw(net.parameters(), {.lr = 0.02});
    data::DataLoader batches(samples(16), {.batch_size = 8});
    Accelerator accelerator({.mixed_precision = "bf16"});
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
    double first = 0, last = 0;
    for (int epoch = 0; epoch < 100; ++epoch) {
        last = 0;
        for (auto& batch : loader) {
            const Tensor loss = tests::squared_error(model(batch["x"]), batch["y"]);
            EXPECT_EQ(loss.dtype(), f32);
            accelerator.backward(loss);
            for (const Tensor& p : model.parameters()) EXPECT_EQ(p.grad().dtype(), f32);
            optimizer.step();
            optimizer.zero_grad();
            last += loss.item();
        }
        if (epoch == 0) first = last;
    }
    EXPECT_LT(last, 0.8 * first);
    for (const Tensor& p : net.parameters()) EXPECT_EQ(p.dtype(), f32);
}

}  // namespace
}  // namespace axle
