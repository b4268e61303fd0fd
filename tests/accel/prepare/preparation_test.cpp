// Tests how Preparation attaches hooks without an Accelerator, and the warning about parameters of
// models that are not prepared.
#include "accel/prepare/preparation.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/log_capture.h"

namespace axle::accel {
namespace {

using tests::samples;
using tests::SmallNet;

struct Objects {
    SmallNet net;
    optim::SGD sgd{net.parameters(), {.lr = 1}};
    optim::StepLR schedule{sgd, 1, 0.5};
    data::DataLoader loader{samples(4), {.shuffle = true, .seed = 3}};
};

struct Parts {
    PartialState processes{{.cpu = true, .process_group = dist::ProcessGroup::alone()}};
    std::shared_ptr<LoopState> loop = std::make_shared<LoopState>();
    Preparation preparation{{.autocast_dtype = bf16}, processes, loop};

    void prepare(Objects& o) {
        preparation.prepare(o.net);
        preparation.prepare(o.sgd);
        preparation.prepare(o.schedule);
        preparation.prepare(o.loader);
    }
};

TEST(Preparation, AttachesHooksOnceAndListsItsObjects) {
    Objects o;
    Parts parts;
    parts.prepare(o);
    const auto hooks = o.net.hooks();
    const int revision = parts.preparation.revision();
    parts.prepare(o);
    ASSERT_NE(hooks, nullptr);
    EXPECT_EQ(hooks->autocast, bf16);
    EXPECT_EQ(o.net.hooks(), hooks);
    EXPECT_EQ(parts.preparation.revision(), revision);
    EXPECT_EQ(parts.preparation.models(), std::vector<nn::Module*>{&o.net});
    EXPECT_EQ(parts.preparation.optimizers(), std::vector<optim::Optimizer*>{&o.sgd});
    EXPECT_EQ(parts.preparation.schedulers(), std::vector<optim::Scheduler*>{&o.schedule});
    EXPECT_EQ(parts.preparation.loaders(), std::vector<data::DataLoader*>{&o.loader});
}

TEST(Preparation, SkipsStepsOfOptimizersAndSchedulersBetweenUpdates) {
    Objects o;
    Parts parts;
    parts.prepare(o);
    o.net(ones({2, 4})).sum().backward();
    const Tensor before = o.net.out.bias.detach().clone();
    parts.loop->accumulation.set_sync_gradients(false);
    o.sgd.step();
    o.schedule.step();
    o.sgd.zero_grad();
    tests::expect_same_bits(o.net.out.bias, before);
    EXPECT_EQ(o.sgd.param_groups()[0].lr, 1);
    EXPECT_TRUE(o.net.out.bias.grad().defined());
    parts.loop->accumulation.set_sync_gradients(true);
    o.sgd.step();
    o.schedule.step();
    EXPECT_NE(o.net.out.bias.item(), before.item());
    EXPECT_EQ(o.sgd.param_groups()[0].lr, 0.5);
}

TEST(Preparation, TracksTheActiveLoader) {
    Objects o;
    Parts parts;
    parts.prepare(o);
    for ([[maybe_unused]] auto& batch : o.loader)
        EXPECT_EQ(parts.loop->accumulation.active_loader(), &o.loader);
    EXPECT_EQ(parts.loop->accumulation.active_loader(), nullptr);
}

TEST(Preparation, RemovesHooksOnClear) {
    Objects o;
    Parts parts;
    parts.prepare(o);
    parts.loop->accumulation.set_sync_gradients(false);
    parts.preparation.clear();
    EXPECT_TRUE(parts.loop->accumulation.sync_gradients());
    EXPECT_EQ(o.net.hooks(), nullptr);
    EXPECT_TRUE(parts.preparation.models().empty());
    parts.loop->accumulation.set_sync_gradients(false);
    o.schedule.step();
    EXPECT_EQ(o.sgd.param_groups()[0].lr, 0.5);
}

TEST(Preparation, KeepsAttachedHooksUsableAfterItIsDestroyed) {
    Objects o;
    {
        Parts parts;
        parts.prepare(o);
        parts.loop->accumulation.set_sync_gradients(false);
    }
    // The unfinished update has ended, so the schedule advances.
    o.schedule.step();
    EXPECT_EQ(o.sgd.param_groups()[0].lr, 0.5);
}

TEST(Preparation, HasNoReplicasForOneProcessAndRejectsUnpreparedModels) {
    Objects o;
    Parts parts;
    parts.prepare(o);
    EXPECT_EQ(parts.preparation.replicas_of("data_parallel", o.net), nullptr);
    EXPECT_EQ(parts.preparation.no_sync_guards("no_sync", {}), nullptr);
    const SmallNet other;
    EXPECT_THROW(parts.preparation.replicas_of("data_parallel", other), UsageError);
}

// Trains for two updates on two processes. Calls prepare(accelerator, model, optimizer) first.
// Returns the log messages about parameters whose model is not prepared.
template <class F>
std::vector<std::string> warnings_of_training(F&& prepare) {
    tests::LogCapture logged;
    tests::on_ranks(2, [&](const auto& group) {
        SmallNet net;
        net.in.bias.set_requires_grad(false);
        optim::SGD sgd(net.parameters(), {.lr = 0.1});
        Accelerator accelerator({.cpu = true, .process_group = group});
        prepare(accelerator, net, sgd);
        for (int update = 0; update < 2; ++update) {
            accelerator.backward(net(ones({2, 4})).sum());
            sgd.step();
            sgd.zero_grad();
        }
    });
    std::vector<std::string> found = logged.lines();
    std::erase_if(found, [](const std::string& line) {
        return line.find("no prepared model") == std::string::npos;
    });
    return found;
}

TEST(PreparedOptimizer, WarnsOnceAboutParametersOfUnpreparedModels) {
    EXPECT_THAT(warnings_of_training([](Accelerator& accelerator, SmallNet&, optim::SGD& sgd) {
                    SmallNet other;
                    accelerator.prepare(sgd, other);
                }),
                testing::ElementsAre(testing::HasSubstr(
                    "prepare: 3 parameters of the optimizer belong to no prepared model, so their "
                    "gradients are not averaged; pass the model to prepare() too")));
}

TEST(PreparedOptimizer, DoesNotWarnIfItsModelIsPreparedLater) {
    EXPECT_THAT(warnings_of_training([](Accelerator& accelerator, SmallNet& net, optim::SGD& sgd) {
                    accelerator.prepare(sgd, net);
                }),
                testing::IsEmpty());
    EXPECT_THAT(warnings_of_training([](Accelerator& accelerator, SmallNet& net, optim::SGD& sgd) {
                    accelerator.prepare(sgd);
                    accelerator.prepare(net);
                }),
                testing::IsEmpty());
}

}  // namespace
}  // namespace axle::accel
