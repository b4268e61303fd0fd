#include "core/autograd/autograd.h"

#include <functional>
#include <stdexcept>

#include <gtest/gtest.h>

#include "core/memory/memory.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"
#include "tests/sanitized.h"

namespace axle {
namespace {

using tests::expect_close;

Tensor leaf(const std::vector<double>& values, const Shape& shape) {
    return tensor(values, shape, {.dtype = f64, .requires_grad = true});
}

template <class F>
std::string text_of(F&& f) {
    try {
        f();
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was thrown";
}

TEST(Autograd, SumsGradientsOfSharedTensor) {
    const Tensor x = leaf({1, 2, 3}, {3});
    sum(x * x + x * 3.0).backward();
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{5, 7, 9}));
}

TEST(Autograd, SumsBroadcastGradientsToInputShape) {
    const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
    const Tensor row = leaf({1, 1, 1}, {3});
    const Tensor scalar = leaf({2}, {});
    sum(x * row * scalar).backward();
    EXPECT_EQ(row.grad().to_vector(), (std::vector<double>{10, 14, 18}));
    EXPECT_EQ(scalar.grad().item(), 21);
}

TEST(Autograd, AccumulatesGradientsUntilZeroGrad) {
    const Tensor x = leaf({2}, {1});
    sum(x * x).backward();
    sum(x * x).backward();
    EXPECT_EQ(x.grad().item(), 8);
    x.zero_grad();
    EXPECT_FALSE(x.grad().defined());
}

TEST(Autograd, DifferentiatesAChainOfAMillionOps) {
    constexpr std::int64_t kOps = tests::kSanitized ? 100'000 : 1'000'000;
    const std::int64_t before = autograd::live_nodes();
    {
        const Tensor x = leaf({1}, {1});
        Tensor y = x;
        for (std::int64_t i = 0; i < kOps; ++i) y = y + 1.0;
        EXPECT_EQ(autograd::live_nodes() - before, kOps);
        y.backward(ones({1}, {.dtype = f64}), true);
        EXPECT_EQ(x.grad().item(), 1);
    }
    EXPECT_EQ(autograd::live_nodes(), before);
}

TEST(Autograd, FreesLongChainsWithoutRecursion) {
    const std::int64_t before = autograd::live_nodes();
    {
        const Tensor x = leaf({1}, {1});
        Tensor y = x;
        for (int i = 0; i < 300'000; ++i) y = y * x;
    }
    EXPECT_EQ(autograd::live_nodes(), before);
}

TEST(Autograd, ComputesSecondDerivatives) {
    const Tensor x = leaf({0.5, -1.5}, {2});
    const Tensor y = sum(x * x * x);
    const Tensor dx = autograd::grad({y}, {x}, {}, {.create_graph = true})[0];
    const Tensor ddx = autograd::grad({sum(dx)}, {x})[0];
    expect_close(ddx, x.detach() * 6.0, 1e-12);
    EXPECT_FALSE(x.grad().defined());
}

// Returns the third derivative of f(x) x^2 at x = 3.
double third_derivative(const std::function<Tensor(const Tensor&)>& f) {
    const Tensor x = leaf({3}, {1});
    Tensor y = sum(f(x) * x * x);
    for (int i = 0; i < 2; ++i) y = sum(autograd::grad({y}, {x}, {}, {.create_graph = true})[0]);
    return autograd::grad({y}, {x})[0].item();
}

TEST(Autograd, ComputesThirdDerivativesOfPiecewiseLinearOpsButNotOfExp) {
    EXPECT_EQ(third_derivative([](const Tensor& x) { return x * 2.0; }), 12);
    EXPECT_EQ(third_derivative([](const Tensor& x) { return x / 2.0; }), 3);
    EXPECT_EQ(third_derivative([](const Tensor& x) { return x + 1.0; }), 6);
    EXPECT_EQ(third_derivative([](const Tensor& x) { return -x; }), -6);
    EXPECT_EQ(third_derivative([](const Tensor& x) { return relu(x); }), 6);
    EXPECT_EQ(third_derivative([](const Tensor& x) { return abs(x); }), 6);
    EXPECT_EQ(third_derivative([](const Tensor& x) { return clamp(x, 0, 5); }), 6);
    EXPECT_EQ(third_derivative([](const Tensor& x) { return floor(x); }), 0);
    tests::expect_error<UsageError>({"exp: can't be differentiated three times"}, [] {
        third_derivative([](const Tensor& x) { return exp(x); });
    });
}

TEST(Autograd, ComputesSecondDerivativesThroughSavedOutputs) {
    const Tensor x = leaf({0.3, -0.7}, {2});
    const Tensor dx = autograd::grad({sum(tanh(x))}, {x}, {}, {.create_graph = true})[0];
    const Tensor ddx = autograd::grad({sum(dx)}, {x})[0];
    const Tensor t = tanh(x.detach());
    expect_close(ddx, t * -2.0 * (1.0 - t * t), 1e-12);
}

TEST(Autograd, FreesGraphUnlessRetained) {
    const Tensor x = leaf({2}, {1});
    const Tensor y = sum(x * x);
    y.backward(ones({}, {.dtype = f64}), true);
    y.backward();
    EXPECT_EQ(x.grad().item(), 8);
    EXPECT_NE(text_of([&] { y.backward(); }).find("freed by an earlier pass"), std::string::npos);
}

TEST(Autograd, DetectsSavedTensorChangedInPlace) {
    const Tensor x = leaf({2}, {1});
    Tensor w = tensor({3.0}, {1}, {.dtype = f64});
    const Tensor y = sum(x * w);
    w.fill_(4);
    EXPECT_NE(text_of([&] { y.backward(); }).find("mul: a tensor saved for the backward pass"),
              std::string::npos);
}

TEST(Autograd, DetectsReplacedStorageOfSavedTensor) {
    const Tensor x = leaf({2}, {1});
    Tensor w = leaf({2, 3}, {2});
    const Tensor y = sum(x * w);
    w.set_data(tensor({4.0, 5.0}, {2}, {f64}));
    EXPECT_NE(text_of([&] {
                  y.backward();
              }).find("mul: the storage of a tensor saved for the backward pass was replaced"),
              std::string::npos);
}

TEST(GradMode, IsRestoredByGuards) {
    EXPECT_TRUE(grad_enabled());
    {
        const NoGrad no_grad;
        EXPECT_FALSE(grad_enabled());
        const GradMode recorded(true);
        EXPECT_TRUE(grad_enabled());
    }
    EXPECT_TRUE(grad_enabled());
}

TEST(Autograd, AllowsInPlaceOpsOnLeavesThatRequireGradOnlyUnderNoGrad) {
    Tensor x = leaf({2}, {1});
    EXPECT_EQ(text_of([&] { x.fill_(0); }).substr(0, 65),
              "fill_: a leaf that requires a gradient can't be changed in place:");
    const NoGrad no_grad;
    x.fill_(0);
    EXPECT_EQ(x.item(), 0);
}

TEST(Autograd, ReportsMissingHistoryAndInvalidGradientArgument) {
    const Tensor x = tensor({1.0, 2.0}, {2});
    EXPECT_NE(text_of([&] { x.backward(); }).find("has no history"), std::string::npos);
    const Tensor y = leaf({1, 2}, {2}) * 2.0;
    EXPECT_NE(text_of([&] { y.backward(); }).find("needs a gradient argument: shape [2]"),
              std::string::npos);
    EXPECT_EQ(text_of([&] { y.backward(ones({3})); }),
              "backward: shapes differ: gradient [3], tensor [2]");
}

TEST(Autograd, CallsHooksInOrderAndSkipsUnusedLeaves) {
    const Tensor x = leaf({1}, {1}), unused = leaf({1}, {1});
    std::vector<std::string> events;
    std::size_t announced = 0;
    const auto begin = autograd::on_backward_begin([&](const std::vector<Tensor>& leaves) {
        announced = leaves.size();
        events.emplace_back("begin");
    });
    const auto end = autograd::on_backward_end([&] { events.emplace_back("end"); });
    const auto final_x = autograd::on_leaf_final(
        x, [&](const Tensor& t) { events.push_back(str("x ", t.grad().item())); });
    const auto final_unused =
        autograd::on_leaf_final(unused, [&](const Tensor&) { events.emplace_back("unused"); });
    sum(x * x + x).backward();
    EXPECT_EQ(announced, 1u);
    EXPECT_EQ(events, (std::vector<std::string>{"begin", "x 3", "end"}));
}

TEST(OnLeafFinal, CallsAllHooksOfThePassIfAHookRemovesItselfOrAddsHooks) {
    const Tensor x = leaf({1}, {1});
    std::vector<std::string> events;
    std::vector<autograd::HookHandle> added;
    autograd::HookHandle once;
    once = autograd::on_leaf_final(x, [&](const Tensor&) {
        events.emplace_back("once");
        once.remove();
    });
    const auto adding = autograd::on_leaf_final(x, [&](const Tensor& t) {
        events.emplace_back("adding");
        for (int i = 0; i < 8 && added.size() < 8; ++i)
            added.push_back(
                autograd::on_leaf_final(t, [&](const Tensor&) { events.emplace_back("added"); }));
    });
    const auto last =
        autograd::on_leaf_final(x, [&](const Tensor&) { events.emplace_back("last"); });
    sum(x * x).backward();
    EXPECT_EQ(events, (std::vector<std::string>{"once", "adding", "last"}));
    events.clear();
    sum(x * x).backward();
    ASSERT_EQ(events.size(), 10u);
    EXPECT_EQ(events[0], "adding");
    EXPECT_EQ(events[1], "last");
    EXPECT_EQ(events[9], "added");
}

TEST(Autograd, StoresGradientsOfHalfPrecisionLeavesInF32) {
    const Tensor w = ones({4}, {.dtype = bf16, .requires_grad = true});
    sum(to(w, f32) * 1.00390625).backward();
    EXPECT_EQ(w.grad().dtype(), f32);
    EXPECT_EQ(w.grad().to_vector()[0], 1.00390625);
}

TEST(Autograd, StoresUnsharedGradientsInLeavesWithoutCopyAndCopiesSharedOnes) {
    const Tensor w = leaf({1, 2, 3}, {3});
    const void* made = nullptr;
    record("op", ones({3}, {.dtype = f64}), {w}, [&](const Grads& dy, Needs) -> Grads {
        Tensor g = add(dy[0], 1.0);
        made = g.raw_data();
        return {std::move(g)};
    }).backward(ones({3}, {.dtype = f64}));
    EXPECT_EQ(w.grad().raw_data(), made);
    // A gradient that is shared with another tensor, here the initial gradient, is copied.
    const Tensor v = leaf({1, 2, 3}, {3}), seed = ones({3}, {.dtype = f64});
    record("op", ones({3}, {.dtype = f64}), {v}, [](const Grads& dy, Needs) -> Grads {
        return {dy[0]};
    }).backward(seed);
    EXPECT_NE(v.grad().raw_data(), seed.raw_data());
}

TEST(ActivationCheckpointing, GivesTheGradientsOfAnOrdinaryForwardAndRestoresTheGenerator) {
    const auto block = [](const Tensor& x) {
        return tanh(x * 1.5) * sigmoid(x) + dropout(x, 0.25);
    };
    manual_seed(7);
    const Tensor x = leaf({0.1, 0.2, 0.3, 0.4}, {4});
    sum(block(block(x))).backward();
    const std::vector<double> expected = x.grad().to_vector();
    x.zero_grad();

    manual_seed(7);
    const auto f = [&](const std::vector<Tensor>& in) { return block(in[0]); };
    const Tensor y = sum(checkpoint(f, {checkpoint(f, {x})}));
    const GeneratorState after_forward = generator_state();
    y.backward();
    EXPECT_EQ(x.grad().to_vector(), expected);
    EXPECT_EQ(generator_state(), after_forward);
}

TEST(ActivationCheckpointing, RestoresTheGeneratorIfTheSecondRunThrows) {
    const Tensor x = leaf({0.1, 0.2}, {2});
    int runs = 0;
    const Tensor y = checkpoint(
        [&](const std::vector<Tensor>& in) {
            const Tensor dropped = dropout(tanh(in[0]), 0.5);
            if (++runs == 2) throw std::runtime_error("second run");
            return dropped;
        },
        {x});
    const GeneratorState after_forward = generator_state();
    EXPECT_THROW(sum(y).backward(), std::runtime_error);
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(generator_state(), after_forward);
}

TEST(SavedTensorHooks, PackAndUnpackSavedTensors) {
    const Tensor x = leaf({3}, {1});
    int packed = 0, unpacked = 0;
    Tensor y;
    {
        const SavedTensorHooksGuard hooks({.pack =
                                               [&](const Tensor& t) {
                                                   ++packed;
                                                   return std::make_shared<Tensor>(t.clone());
                                               },
                                           .unpack =
                                               [&](const std::shared_ptr<void>& form) {
                                                   ++unpacked;
                                                   return *std::static_pointer_cast<Tensor>(form);
                                               }});
        y = sum(x * x);
    }
    y.backward();
    EXPECT_EQ(packed, unpacked);
    EXPECT_EQ(packed, 2);
    EXPECT_EQ(x.grad().item(), 6);
}

TEST(Autograd, AllocatesNoSystemMemoryInSteadyState) {
    const Tensor w = zeros({64, 64}, {.requires_grad = true});
    const auto step = [&] {
        w.zero_grad();
        sum(tanh(w) * 2.0).backward();
    };
    step();
    step();
    const std::int64_t before = host_memory::stats().system_allocations;
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(host_memory::stats().system_allocations, before);
}

}  // namespace
}  // namespace axle
