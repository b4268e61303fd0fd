// Tests the lifetime of prepared objects: objects that are destroyed, moved, or prepared by several
// Accelerators, and loops that end with an exception. Also tests models that prepare() rejects or
// warns about, because a member or parameter would not be trained.
#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::samples;
using tests::SmallNet;
using tests::squared_error;

// A record of one fold of a cross-validation.
struct Fold {
    std::vector<double> losses = {};
    std::vector<DType> dtypes = {};     // the hidden layer's output
    std::vector<bool> has_synced = {};  // sync_gradients() of each micro-batch
    std::int64_t batches = 0;           // length of this process's loader
    bool operator==(const Fold&) const = default;
};

Fold train_fold(Accelerator& accelerator) {
    manual_seed(5);
    SmallNet net;
    optim::AdamW adamw(net.parameters(), {.lr = 0.05});
    optim::StepLR schedule(adamw, 1, 0.9);
    data::DataLoader loader(samples(24), {.batch_size = 2, .shuffle = true, .seed = 3});
    accelerator.prepare(net, adamw, schedule, loader);
    Fold fold{.batches = loader.len()};
    for (auto& batch : loader) {
        const auto scope = accelerator.accumulate(net);
        const Tensor loss = squared_error(net(batch["x"]), batch["y"]);
        accelerator.backward(loss);
        adamw.step();
        schedule.step();
        adamw.zero_grad();
        fold.losses.push_back(loss.item());
        fold.dtypes.push_back(net.hidden_dtype);
        fold.has_synced.push_back(accelerator.sync_gradients());
    }
    return fold;
}

TEST(CrossValidation, GivesEqualResultsForRepeatedFoldsOnOneAccelerator) {
    for (const char* precision : {"no", "bf16", "fp16"}) {
        SCOPED_TRACE(precision);
        Accelerator accelerator(
            {.mixed_precision = precision, .gradient_accumulation_steps = 4, .cpu = true});
        const Fold first = train_fold(accelerator);
        EXPECT_EQ(first.batches, 12);
        EXPECT_EQ(std::count(first.has_synced.begin(), first.has_synced.end(), true), 3);
        for (int fold = 1; fold < 3; ++fold) EXPECT_EQ(train_fold(accelerator), first);
    }
}

TEST(CrossValidation, ShardsLoadersAndSynchronizesModelsOfEveryFold) {
    tests::on_ranks(2, [](const auto& group) {
        Accelerator accelerator(
            {.gradient_accumulation_steps = 2, .cpu = true, .process_group = group});
        for (int fold = 0; fold < 3; ++fold) {
            SmallNet net;
            optim::SGD sgd(net.parameters(), {.lr = 0.1});
            data::DataLoader loader(samples(24), {.batch_size = 2});
            accelerator.prepare(net, sgd, loader);
            EXPECT_EQ(loader.len(), 6);
            for (auto& batch : loader) {
                const auto scope = accelerator.accumulate(net);
                accelerator.backward(squared_error(net(batch["x"]), batch["y"]));
                sgd.step();
                sgd.zero_grad();
            }
            const std::vector<Tree> weights =
                group->all_gather_object(Tree(net.in.weight.detach().clone()));
            tests::expect_same_bits(weights[0].tensor(), weights[1].tensor());
        }
    });
}

struct Objects {
    SmallNet net;
    optim::SGD sgd{net.parameters(), {.lr = 0.1}};
    optim::StepLR schedule{sgd, 1, 0.5};
    data::DataLoader loader{samples(4)};
};

TEST(SaveStateAndLoadState, ReportDestroyedModelsOptimizersAndSchedulers) {
    const tests::TemporaryFolder folder;
    Accelerator accelerator({.cpu = true});
    {
        Objects o;
        accelerator.prepare(o.net, o.sgd, o.schedule, o.loader);
    }
    const auto expect_names = [](const char* op, auto&& call) {
        for (const char* name :
             {"model 0 (axle::tests::SmallNet)", "optimizer 0 (axle::optim::SGD)",
              "scheduler 0 (axle::optim::StepLR)"})
            expect_error<UsageError>({op, name}, call);
    };
    expect_names("save_state: ", [&] { accelerator.save_state(folder / "state"); });
    expect_names("load_state: ", [&] { accelerator.load_state(folder / "state"); });
    data::DataLoader evaluation(samples(2));
    accelerator.prepare(evaluation);  // does not replace the lost objects
    expect_names("save_state: ", [&] { accelerator.save_state(folder / "state"); });
    accelerator.free_memory();
    EXPECT_NO_THROW(accelerator.save_state(folder / "state"));
}

TEST(SaveState, SavesTheObjectsPreparedAfterOthersWereDestroyed) {
    const tests::TemporaryFolder folder;
    Accelerator accelerator({.cpu = true});
    for (int fold = 0; fold < 2; ++fold) {
        Objects o;
        accelerator.prepare(o.net, o.sgd, o.schedule, o.loader);
        accelerator.save_state(folder / "state");
        const Tensor saved = o.net.in.weight.detach().clone();
        {
            const NoGrad no_grad;
            o.net.in.weight.fill_(0);
        }
        accelerator.load_state(folder / "state");
        tests::expect_same_bits(o.net.in.weight.detach(), saved);
    }
}

// Returns the sum of the losses on a new loader. Programs call such a function after each epoch.
double evaluate(Accelerator& accelerator, SmallNet& net) {
    data::DataLoader loader(samples(6), {.batch_size = 2});
    accelerator.prepare(loader);
    double sum = 0;
    for (auto& batch : loader) sum += squared_error(net(batch["x"]), batch["y"]).item();
    return sum;
}

TEST(SaveState, IgnoresDestroyedLoaders) {
    const tests::TemporaryFolder folder;
    Accelerator accelerator({.cpu = true});
    Objects o;
    accelerator.prepare(o.net, o.sgd, o.schedule, o.loader);
    o.net.eval();
    const double first = evaluate(accelerator, o.net);
    accelerator.save_state(folder / "state");
    EXPECT_EQ(evaluate(accelerator, o.net), first);
    accelerator.load_state(folder / "state");
    EXPECT_EQ(accelerator.gradient_state().active_dataloader, nullptr);
}

TEST(PreparedModel, StaysPreparedWhenMoved) {
    const tests::TemporaryFolder folder;
    Accelerator accelerator({.mixed_precision = "bf16", .cpu = true});
    auto first = std::make_unique<SmallNet>();
    accelerator.prepare(*first);
    SmallNet net(std::move(*first));
    first.reset();
    net(ones({1, 4}));
    EXPECT_EQ(net.hidden_dtype, bf16);
    EXPECT_NO_THROW(accelerator.save_state(folder / "state"));
    const auto hooks = net.hooks();
    accelerator.prepare(net);
    EXPECT_EQ(net.hooks(), hooks);
}

// Prepares two loaders, moves them and returns them.
std::pair<data::DataLoader, data::DataLoader> prepared_loaders(Accelerator& accelerator) {
    data::DataLoader train(samples(24), {.batch_size = 2, .shuffle = true, .seed = 3});
    data::DataLoader test(samples(8), {.batch_size = 2});
    accelerator.prepare(train, test);
    return {std::move(train), std::move(test)};
}

TEST(PreparedLoader, StaysPreparedWhenMoved) {
    tests::on_ranks(2, [](const auto& group) {
        Accelerator accelerator(
            {.gradient_accumulation_steps = 4, .cpu = true, .process_group = group});
        auto [train, test] = prepared_loaders(accelerator);
        EXPECT_EQ(train.len(), 6);  // this process's part of the batches
        EXPECT_EQ(test.len(), 2);
        std::vector<bool> has_synced;
        for ([[maybe_unused]] auto& batch : train) {
            EXPECT_EQ(accelerator.gradient_state().active_dataloader, &train);
            const auto scope = accelerator.accumulate();
            has_synced.push_back(accelerator.sync_gradients());
        }
        EXPECT_EQ(has_synced, (std::vector<bool>{false, false, false, true, false, true}));

        data::DataLoader kept(samples(4));
        kept = std::move(test);
        EXPECT_EQ(kept.len(), 2);
        accelerator.free_memory();  // detaches the loaders at their new addresses
        EXPECT_EQ(train.len(), 12);
        EXPECT_EQ(kept.len(), 4);
    });
}

TEST(PreparedLoader, SavesAndLoadsItsPositionAfterItWasMoved) {
    const tests::TemporaryFolder folder;
    Accelerator accelerator({.cpu = true});
    auto [train, test] = prepared_loaders(accelerator);
    for ([[maybe_unused]] auto& batch : train)
        if (train.position() == 5) {
            accelerator.save_state(folder / "state");
            break;
        }
    accelerator.load_state(folder / "state");
    EXPECT_EQ(train.position(), 5);
    std::vector<data::DataLoader> loaders;
    loaders.push_back(std::move(train));
    loaders.push_back(std::move(test));
    loaders[0].skip_first_batches(0);
    accelerator.load_state(folder / "state");
    EXPECT_EQ(loaders[0].position(), 5);
    EXPECT_EQ(loaders[1].position(), 0);
    loaders.clear();  // the Accelerator removes destroyed loaders from its lists
    data::DataLoader next(samples(4));
    accelerator.prepare(next);
    accelerator.save_state(folder / "next");
}

TEST(PreparedModel, BelongsToTheAcceleratorThatPreparedItLast) {
    const tests::TemporaryFolder folder;
    Accelerator first({.mixed_precision = "bf16", .cpu = true});
    Accelerator second({.mixed_precision = "bf16", .cpu = true});
    SmallNet net;
    first.prepare(net);
    second.prepare(net);
    net(ones({1, 4}));
    EXPECT_EQ(net.hidden_dtype, bf16);
    expect_error<UsageError>({"save_state: ", "model 0"},
                             [&] { first.save_state(folder / "first"); });
    EXPECT_NO_THROW(second.save_state(folder / "second"));
}

struct ForgetsALayer : nn::Model<ForgetsALayer> {
    nn::Linear in{4, 8}, out{8, 1};
    Tensor forward(const Tensor& x) { return out(in(x)); }
    void visit(nn::Visitor& v) override { v("in", in); }
};

TEST(Prepare, RejectsAModelWhoseVisitDoesNotNameALayer) {
    Accelerator accelerator({.cpu = true});
    ForgetsALayer net;
    expect_error<UsageError>({"axle::(anonymous namespace)::ForgetsALayer::visit: ", "Linear"},
                             [&] { accelerator.prepare(net); });
    EXPECT_EQ(net.hooks(), nullptr);
}

struct ForgetsAParameter : nn::Model<ForgetsAParameter> {
    nn::Linear in{4, 8};
    Tensor scale = ones({8}, {.requires_grad = true});
    Tensor forward(const Tensor& x) { return in(x)*scale; }
    void visit(nn::Visitor& v) override { v("in", in); }
};

TEST(Prepare, RejectsAModelWhoseVisitDoesNotNameAParameter) {
    Accelerator accelerator({.cpu = true});
    ForgetsAParameter net;
    expect_error<UsageError>({"axle::(anonymous namespace)::ForgetsAParameter::visit: ",
                              "a parameter (float32 [8])", "add it to visit()"},
                             [&] { accelerator.prepare(net); });
    EXPECT_EQ(net.hooks(), nullptr);
}

TEST(Prepare, PreparesObjectsInPointersAndOptionalsButRejectsEmptyPointers) {
    Accelerator accelerator({.mixed_precision = "bf16", .cpu = true});
    auto net = std::make_unique<SmallNet>();
    std::optional<optim::SGD> sgd;
    sgd.emplace(net->parameters(), optim::SGDOptions{.lr = 0.1});
    const auto loader = std::make_shared<data::DataLoader>(samples(4));
    accelerator.prepare(net, sgd, loader);
    EXPECT_NE(net->hooks(), nullptr);
    for (auto& batch : *loader) {
        EXPECT_EQ(accelerator.gradient_state().active_dataloader, loader.get());
        (*net)(batch["x"]).sum().backward();
    }
    std::unique_ptr<SmallNet> none;
    expect_error<UsageError>({"prepare: ", "empty"}, [&] { accelerator.prepare(none); });
}

TEST(PreparedObjects, CanBeUsedInFp16AfterTheAcceleratorIsDestroyed) {
    Objects o;
    {
        Accelerator accelerator({.mixed_precision = "fp16", .cpu = true});
        accelerator.prepare(o.net, o.sgd, o.schedule, o.loader);
    }
    auto other = std::make_unique<Objects>();
    {
        Accelerator accelerator({.mixed_precision = "fp16", .cpu = true});
        accelerator.prepare(other->net, other->sgd, other->schedule, other->loader);
    }
    other.reset();
    for (auto& batch : o.loader) o.net(batch["x"]).sum().backward();
    EXPECT_NO_THROW(o.sgd.step());
}

TEST(PreparedObjects, StepAfterTheAcceleratorIsDestroyedWithinAnUpdate) {
    Objects o;
    {
        Accelerator accelerator({.gradient_accumulation_steps = 4, .cpu = true});
        accelerator.prepare(o.net, o.sgd, o.schedule, o.loader);
        const auto scope = accelerator.accumulate(o.net);
        accelerator.backward(o.net(ones({2, 4})).sum());
        o.sgd.step();
        EXPECT_FALSE(accelerator.sync_gradients());
    }
    const Tensor before = o.net.out.weight.detach().clone();
    const std::int64_t steps = o.schedule.step_count();
    o.sgd.step();
    o.schedule.step();
    o.sgd.zero_grad();
    EXPECT_NE(o.net.out.weight.to_vector(), before.to_vector());
    EXPECT_EQ(o.schedule.step_count(), steps + 1);
    EXPECT_FALSE(o.net.out.weight.grad().defined());
}

TEST(PreparedLoader, CanBeUsedAfterAnExceptionInItsLoop) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    Objects o;
    accelerator.prepare(o.net, o.sgd, o.schedule, o.loader);
    const auto loop = [&](bool fails) {
        std::int64_t batches = 0;
        for (auto& batch : o.loader) {
            EXPECT_EQ(accelerator.gradient_state().active_dataloader, &o.loader);
            if (fails && batches == 1) throw std::runtime_error("on purpose");
            const auto scope = accelerator.accumulate(o.net);
            accelerator.backward(squared_error(o.net(batch["x"]), batch["y"]));
            ++batches;
        }
        return batches;
    };
    EXPECT_THROW(loop(true), std::runtime_error);
    EXPECT_EQ(accelerator.gradient_state().active_dataloader, nullptr);
    EXPECT_EQ(loop(false), 4);
}

TEST(PreparedLoader, RejectsASecondLoopWithinItsLoop) {
    Accelerator accelerator({.cpu = true});
    data::DataLoader loader(samples(4));
    accelerator.prepare(loader);
    std::int64_t batches = 0;
    for ([[maybe_unused]] auto& outer : loader) {
        expect_error<UsageError>({"DataLoader: ", "still active"}, [&] { loader.begin(); });
        ++batches;
    }
    EXPECT_EQ(batches, 4);
    for ([[maybe_unused]] auto& batch : loader) ++batches;
    EXPECT_EQ(batches, 8);
}

struct Gate : nn::Model<Gate> {
    nn::Linear frozen{2, 2};
    Tensor scale = ones({2});
    Gate() { frozen.requires_grad_(false); }
    Tensor forward(const Tensor& x) { return frozen(x) * scale; }
    void visit(nn::Visitor& v) override { v("frozen", frozen), v("scale", scale); }
};

// Unlike torch.nn.Parameter, a tensor does not require a gradient by default.
TEST(Prepare, WarnsAboutParametersThatNeitherRequireAGradientNorAreFrozen) {
    tests::LogCapture capture;
    Accelerator accelerator({.cpu = true});
    Gate gate;
    Gate copy = gate.clone();
    accelerator.prepare(gate, copy);
    ASSERT_EQ(capture.lines().size(), 2u);
    EXPECT_EQ(capture.lines()[0],
              "prepare: these parameters do not require a gradient and are not trained: 'scale'; "
              "create them with {.requires_grad = true}, or name them with v.buffer()");
}

}  // namespace
}  // namespace axle
