// Tests hooks of gradients and retained gradients. PyTorch 2.15 computes the same values.
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_error;
using Values = std::vector<double>;

Tensor leaf(const Values& values, DType dtype = f64) {
    return tensor(values, {static_cast<std::int64_t>(values.size())},
                  {.dtype = dtype, .requires_grad = true});
}

TEST(RegisterHook, ReplacesTheGradientOfAnIntermediateTensorBeforeItIsUsed) {
    const Tensor w = leaf({2});
    const Tensor m = w * 3.0;
    const auto scaled = m.register_hook([](const Tensor& g) { return g * 10.0; });
    Tensor seen;
    const auto next = m.register_hook([&](const Tensor& g) { seen = g; });
    (m * m).sum().backward();
    EXPECT_EQ(seen.to_vector(), (Values{120}));
    EXPECT_EQ(w.grad().to_vector(), (Values{360}));
}

TEST(RegisterHook, ReceivesTheSumOfTheGradientsOfAllUses) {
    const Tensor w = leaf({1, 2});
    const Tensor m = w * 2.0;
    std::vector<Values> seen;
    const auto hook = m.register_hook([&](const Tensor& g) { seen.push_back(g.to_vector()); });
    (m * 3.0 + m.exp() * 0.0 + m).sum().backward();
    EXPECT_EQ(seen, (std::vector<Values>{{4, 4}}));
}

TEST(RegisterHook, ChangesGradientsOfLeavesBeforeTheyAreAccumulated) {
    const Tensor w = leaf({2});
    const auto hook = w.register_hook([](const Tensor& g) { return g * 10.0; });
    Values final_grad;
    const auto after =
        autograd::on_leaf_final(w, [&](const Tensor& x) { final_grad = x.grad().to_vector(); });
    for (const double expected : {40, 80}) {
        (w * w).sum().backward();
        EXPECT_EQ(w.grad().to_vector(), (Values{expected}));
        EXPECT_EQ(final_grad, (Values{expected}));
    }
}

TEST(RegisterHook, ChangesTheResultsOfGrad) {
    const Tensor w = leaf({2});
    const Tensor m = w * 3.0;
    const auto of_w = w.register_hook([](const Tensor& g) { return g + 1.0; });
    const auto of_m = m.register_hook([](const Tensor& g) { return g * 10.0; });
    const auto gradients = autograd::grad({(m * m).sum()}, {w, m});
    EXPECT_EQ(gradients[0].to_vector(), (Values{361}));
    EXPECT_EQ(gradients[1].to_vector(), (Values{120}));
    EXPECT_FALSE(w.grad().defined());
}

TEST(RegisterHook, BelongsToOneOutputOfAnOp) {
    const Tensor x = leaf({1, 2});
    const std::vector<Tensor> parts = x.split(1);
    int calls_of_first = 0, calls_of_second = 0;
    const auto first = parts[0].register_hook([&](const Tensor&) { ++calls_of_first; });
    const auto second = parts[1].register_hook([&](const Tensor& g) {
        ++calls_of_second;
        return g * 5.0;
    });
    parts[1].sum().backward();
    EXPECT_EQ(calls_of_first, 0);
    EXPECT_EQ(calls_of_second, 1);
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 5}));
}

TEST(RegisterHook, StopsWhenItsHandleIsDestroyedOrRemovedByTheHook) {
    const Tensor w = leaf({2});
    const Tensor m = w * 3.0;
    int calls = 0;
    {
        const auto hook = m.register_hook([&](const Tensor&) { ++calls; });
    }
    autograd::HookHandle once = w.register_hook([&](const Tensor&) {
        ++calls;
        once.remove();
    });
    autograd::backward({m.sum()}, {}, {.retain_graph = true});
    m.sum().backward();
    EXPECT_EQ(calls, 1);
}

TEST(RegisterHook, CallsHooksOfTheValuesBeforeAndAfterAChangeInPlace) {
    Tensor m = leaf({1, 1}) * 2.0;
    Values earlier, later;
    const auto before = m.register_hook([&](const Tensor& g) { earlier = g.to_vector(); });
    m.mul_(5.0);
    const auto after = m.register_hook([&](const Tensor& g) { later = g.to_vector(); });
    m.sum().backward();
    EXPECT_EQ(earlier, (Values{5, 5}));
    EXPECT_EQ(later, (Values{1, 1}));
}

TEST(RegisterHook, IsDifferentiatedWithCreateGraph) {
    const Tensor w = leaf({2});
    const Tensor y = w * w;
    const auto hook = y.register_hook([](const Tensor& g) { return g * 3.0; });
    const Tensor g = autograd::grad({y.sum()}, {w}, {}, {.create_graph = true})[0];
    EXPECT_EQ(g.to_vector(), (Values{12}));
    EXPECT_EQ(autograd::grad({g.sum()}, {w})[0].to_vector(), (Values{6}));
}

TEST(RegisterHook, ReceivesGradientsOfBf16LeavesInF32) {
    const Tensor w = leaf({2}, bf16);
    std::optional<DType> dtype;
    const auto hook = w.register_hook([&](const Tensor& g) { dtype = g.dtype(); });
    (w * 2.0).sum().backward();
    EXPECT_EQ(dtype, f32);
}

TEST(RegisterHook, RejectsTensorsThatRequireNoGradientAndResultsOfAnotherShapeOrDType) {
    expect_error<UsageError>({"register_hook", "must require a gradient", "[2]"}, [] {
        const auto hook = ones({2}).register_hook([](const Tensor&) {});
    });
    expect_error<UsageError>({"register_hook", "undefined"}, [] {
        const auto hook = Tensor().register_hook([](const Tensor&) {});
    });
    const Tensor x = leaf({1, 2});
    {
        const auto hook = x.register_hook([](const Tensor&) { return ones({3}, {f64}); });
        expect_error<ShapeError>({"register_hook", "[2]", "[3]"}, [&] { x.sum().backward(); });
    }
    const auto hook = x.register_hook([](const Tensor&) { return ones({2}); });
    expect_error<DTypeError>({"register_hook", "float64", "float32"}, [&] { x.sum().backward(); });
}

TEST(RetainGrad, AccumulatesTheGradientOfAnIntermediateTensor) {
    const Tensor w = leaf({2});
    const Tensor m = w * 3.0;
    m.retain_grad();
    m.retain_grad();
    const Tensor loss = (m * m).sum();
    EXPECT_EQ(autograd::grad({loss}, {w}, {}, {.retain_graph = true})[0].to_vector(), (Values{36}));
    EXPECT_EQ(m.grad().to_vector(), (Values{12}));
    autograd::backward({loss}, {}, {.retain_graph = true});
    EXPECT_EQ(m.grad().to_vector(), (Values{24}));
    loss.backward();
    EXPECT_EQ(m.grad().to_vector(), (Values{36}));
    EXPECT_EQ(w.grad().to_vector(), (Values{72}));
    m.zero_grad();
    EXPECT_FALSE(m.grad().defined());
}

TEST(RetainGrad, StoresWhatHooksReturn) {
    const Tensor m = leaf({2}) * 3.0;
    m.retain_grad();
    const auto hook = m.register_hook([](const Tensor& g) { return g * 10.0; });
    (m * m).sum().backward();
    EXPECT_EQ(m.grad().to_vector(), (Values{120}));
}

TEST(RetainGrad, FollowsTheTensorThroughAChangeInPlace) {
    Tensor m = leaf({1, 1}) * 2.0;
    m.retain_grad();
    m.mul_(5.0);
    m.sum().backward();
    EXPECT_EQ(m.grad().to_vector(), (Values{1, 1}));
}

TEST(RetainGrad, DoesNothingForLeavesAndRejectsTensorsThatRequireNoGradient) {
    const Tensor w = leaf({3});
    w.retain_grad();
    (w * 2.0).sum().backward();
    EXPECT_EQ(w.grad().to_vector(), (Values{2}));
    expect_error<UsageError>({"retain_grad", "must require a gradient"},
                             [] { ones({2}).retain_grad(); });
}

TEST(RetainGrad, DoesNotShareMemoryWithGradientsOfLeaves) {
    const Tensor w = leaf({1, 2});
    const Tensor m = w + 0.0;
    m.retain_grad();
    m.sum().backward();
    const NoGrad no_grad;
    m.grad().mul_(7.0);
    EXPECT_EQ(w.grad().to_vector(), (Values{1, 1}));
}

}  // namespace
}  // namespace axle
