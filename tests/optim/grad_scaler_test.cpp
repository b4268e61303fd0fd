#include "optim/grad_scaler.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/exec.h"
#include "kernels/ops/step_state.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using optim::GradScaler;
using optim::GradScalerOptions;
using optim::SGD;
using tests::expect_error;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

GradScalerOptions options_of(const nlohmann::json& json) {
    GradScalerOptions options;
    options.init_scale = json.value("init_scale", options.init_scale);
    options.growth_factor = json.value("growth_factor", options.growth_factor);
    options.backoff_factor = json.value("backoff_factor", options.backoff_factor);
    options.growth_interval = json.value("growth_interval", options.growth_interval);
    options.enabled = json.value("enabled", options.enabled);
    return options;
}

Tensor parameter(std::vector<double> values = {1, 2}, DType dtype = f32) {
    const auto n = static_cast<std::int64_t>(values.size());
    return tensor(values, {n}, {.dtype = dtype, .requires_grad = true});
}
void set_gradient(const Tensor& param, double value) {
    param.set_grad(full(param.shape(), value, {.dtype = param.dtype()}));
}
std::int64_t tracker_of(const GradScaler& scaler) {
    return scaler.state_dict()["_growth_tracker"].integer();
}

// Covers 8.GradScaler, 8.GradScalerKwargs.
TEST(GradScaler, MatchesScalesAndSkippedStepsOfPyTorch) {
    const auto file = tests::vectors("grad_scaler.json");
    for (const auto& c : file["cases"]) {
        GradScaler scaler(options_of(c));
        const Tensor p = parameter();
        SGD sgd({p}, {.lr = 0});
        const auto& trace = c["trace"];
        const bool listed = c["found_inf"].is_array();
        const std::size_t steps = listed ? c["found_inf"].size() : 2001;
        // The trace omits these steps after its second row.
        const std::size_t hidden = steps - trace.size();
        for (std::size_t t = 0; t < steps; ++t) {
            const double scale = scaler.get_scale();
            set_gradient(p, listed && c["found_inf"][t] != 0 ? kInfinity : 1);
            scaler.step(sgd);
            scaler.update();
            if (hidden > 0 && t >= 2 && t < 2 + hidden) continue;
            const auto& row = trace[t < 2 ? t : t - hidden];
            ASSERT_EQ(scale, row["scale_used"]) << t;
            ASSERT_EQ(sgd.step_was_skipped(), row["step_was_skipped"]) << t;
            ASSERT_EQ(scaler.get_scale(), row["scale_after"]) << t;
            ASSERT_EQ(tracker_of(scaler), row["growth_tracker"]) << t;
        }
    }
}

// A replay of one case of tests/golden/record_grad_scaler.py.
class Recorded {
  public:
    explicit Recorded(const nlohmann::json& c) : case_(c), scaler_(options_of(c["options"])) {
        for (int k = 0; k < c["optimizers"]; ++k) {
            std::vector<double> start;
            for (int i = 0; i < 4; ++i) start.push_back(std::cos(0.7 * i + k));
            params_.push_back(parameter(start));
            sgds_.push_back(std::make_unique<SGD>(std::vector{params_.back()},
                                                  optim::SGDOptions{.lr = 0.1, .momentum = 0.9}));
        }
    }

    void expect_step(int t, const nlohmann::json& row) {
        EXPECT_EQ(scaler_.get_scale(), row["scale_used"]) << t;
        for (std::size_t k = 0; k < sgds_.size(); ++k) {
            sgds_[k]->zero_grad();
            scaler_.scale(sum(params_[k] * factors(t, static_cast<int>(k)))).backward();
        }
        for (std::size_t k = 0; k < sgds_.size() && row.contains("norms"); ++k) {
            scaler_.unscale_(*sgds_[k]);
            const Tensor norm = optim::clip_grad_norm_({params_[k]}, case_["max_norm"]);
            if (!row["norms"][k].is_null()) {
                EXPECT_NEAR(norm.item(), row["norms"][k], 1e-6) << t;
            }
        }
        for (const auto& sgd : sgds_) scaler_.step(*sgd);
        scaler_.update();
        for (std::size_t k = 0; k < sgds_.size(); ++k) {
            EXPECT_EQ(sgds_[k]->step_was_skipped(), row["skipped"][k]) << t;
            for (int i = 0; i < 4; ++i)
                EXPECT_NEAR(params_[k][i].item(), row["values"][k][i], 1e-6) << t;
        }
        const Tree state = scaler_.state_dict();
        ASSERT_EQ(state.size(), row["state"].size());
        for (const auto& [key, value] : row["state"].items())
            EXPECT_EQ(state[key].number(), value) << key << " at " << t;
    }

  private:
    Tensor factors(int t, int k) const {
        std::vector<double> row;
        for (int i = 0; i < 4; ++i) row.push_back(std::sin(0.3 * t + i + k));
        for (const auto& at : case_["infinite"])
            if (at[0] == t && at[1] == k) row[1] = kInfinity;
        return tensor(row, {4});
    }

    const nlohmann::json& case_;
    GradScaler scaler_;
    std::vector<Tensor> params_;
    std::vector<std::unique_ptr<SGD>> sgds_;
};

TEST(GradScaler, MatchesPyTorchWithClippingAndSeveralOptimizers) {
    const auto golden = tests::golden_json("grad_scaler.json");
    for (const auto& c : golden["cases"]) {
        Recorded recorded(c);
        for (int t = 0; t < static_cast<int>(c["trace"].size()); ++t)
            recorded.expect_step(t, c["trace"][static_cast<std::size_t>(t)]);
    }
}

TEST(GradScaler, RejectsCallsInWrongOrder) {
    GradScaler scaler;
    const Tensor p = parameter();
    SGD sgd({p});
    expect_error<UsageError>({"GradScaler: update(): no gradients were checked"},
                             [&] { scaler.update(); });
    expect_error<UsageError>({"GradScaler: step(): no parameter of the optimizer has a gradient"},
                             [&] { scaler.step(sgd); });
    set_gradient(p, 1);
    scaler.unscale_(sgd);
    expect_error<UsageError>({"GradScaler: unscale_() has already been called"},
                             [&] { scaler.unscale_(sgd); });
    scaler.step(sgd);
    expect_error<UsageError>({"GradScaler: unscale_() must be called before step()"},
                             [&] { scaler.unscale_(sgd); });
    expect_error<UsageError>({"GradScaler: step() has already been called"},
                             [&] { scaler.step(sgd); });
    scaler.update();
    scaler.step(sgd);
    scaler.update();
    EXPECT_EQ(tracker_of(scaler), 2);
}

TEST(GradScaler, RejectsInvalidOptionsStatesAndF16Gradients) {
    for (const GradScalerOptions& options : std::vector<GradScalerOptions>{{.init_scale = 0},
                                                                           {.init_scale = 1e39},
                                                                           {.init_scale = 1e-50},
                                                                           {.init_scale = NAN},
                                                                           {.growth_factor = 1},
                                                                           {.backoff_factor = 1},
                                                                           {.growth_interval = 0}})
        expect_error<ValueError>({"GradScaler: "}, [&] { GradScaler scaler(options); });
    GradScaler scaler;
    expect_error<ValueError>({"GradScaler: load_state_dict: the state is empty"},
                             [&] { scaler.load_state_dict(Tree::map()); });
    Tree state = scaler.state_dict();
    state.set("_growth_tracker", -1);
    state.set("scale", 2.0);
    expect_error<ValueError>({"GradScaler: load_state_dict: _growth_tracker", "-1"},
                             [&] { scaler.load_state_dict(state); });
    EXPECT_EQ(scaler.get_scale(), 65536);
    const Tensor half = parameter({1, 2}, f16);
    SGD sgd({half});
    set_gradient(half, 1);
    expect_error<ValueError>({"GradScaler: unscale_() cannot unscale float16 gradients"},
                             [&] { scaler.unscale_(sgd); });
}

TEST(GradScaler, RestoresItsStateFromAStateDict) {
    GradScaler one({.init_scale = 8, .growth_factor = 4, .growth_interval = 3});
    const Tensor p = parameter();
    SGD sgd({p});
    for (int i = 0; i < 2; ++i) set_gradient(p, 1), one.step(sgd), one.update();
    for (const bool used : {false, true}) {
        GradScaler other;
        if (used) static_cast<void>(other.scale(ones({})));
        other.load_state_dict(one.state_dict());
        EXPECT_EQ(to_json(other.state_dict()), to_json(one.state_dict()));
        other.step(sgd);
        other.update();
        EXPECT_EQ(other.get_scale(), 32);
    }
}

TEST(GradScaler, UnscalesInStepUnlessUnscaleWasCalled) {
    for (const DType dtype : {f32, f64}) {
        const Tensor a = parameter({1, -2, 3}, dtype), b = parameter({1, -2, 3}, dtype);
        optim::AdamW of_a({a}), of_b({b});
        GradScaler scaler({.init_scale = 1000});
        scaler.scale(sum(a * a)).backward();
        scaler.scale(sum(b * b)).backward();
        scaler.unscale_(of_b);
        tests::expect_close(b.grad(), mul(b.detach(), 2), dtype == f64 ? 1e-15 : 1e-6);
        scaler.step(of_a);
        scaler.step(of_b);
        scaler.update();
        tests::expect_close(a.detach(), b.detach(), dtype == f64 ? 1e-15 : 1e-7);
    }
}

TEST(GradScaler, RemovesScalarsFromOptimizerAfterStep) {
    const Tensor p = parameter({1});
    SGD sgd({p}, {.lr = 1});
    GradScaler scaler({.init_scale = 4});
    set_gradient(p, 4);
    scaler.step(sgd);
    EXPECT_EQ(p.item(), 0);
    sgd.step();
    EXPECT_EQ(p.item(), -4);
}

TEST(GradScaler, SkipsStepIfFoundInfHookRequestsIt) {
    GradScaler scaler;
    bool elsewhere = true;
    scaler.set_found_inf_hook([&](const Tensor& found_inf) {
        EXPECT_EQ(found_inf.item(), 0);
        if (elsewhere) Tensor(found_inf).fill_(1);
    });
    const Tensor p = parameter();
    SGD sgd({p});
    for (const bool skipped : {true, false}) {
        elsewhere = skipped;
        set_gradient(p, 1);
        scaler.step(sgd);
        scaler.update();
        EXPECT_EQ(sgd.step_was_skipped(), skipped);
        EXPECT_EQ(scaler.get_scale(), 32768);
    }
}

TEST(GradScaler, SetsGivenScaleInUpdateAndRejectsNegativeScales) {
    GradScaler scaler;
    scaler.update(16);
    EXPECT_EQ(scaler.get_scale(), 16);
    EXPECT_EQ(scaler.scale(full({}, 3.0)).item(), 48);
    scaler.update(0.5);
    EXPECT_EQ(scaler.scale(full({}, 3.0)).item(), 1.5);
    expect_error<ValueError>({"GradScaler: new_scale must be positive and finite", "-1"},
                             [&] { scaler.update(-1); });
}

TEST(UpdateScaleKernel, DoesNotOverflowF32) {
    kernels::Cpu on;
    const double found = 0;
    for (const auto& [from, factor, to] :
         std::vector<std::tuple<float, double, float>>{{1.7e38f, 2, 1.7e38f * 2},
                                                       {1.8e38f, 2, 1.8e38f},
                                                       {INFINITY, 2, INFINITY},
                                                       {3.4028234e38f, 1.00000001, 3.4028234e38f},
                                                       {1e-45f, 2, 2.8e-45f}}) {
        float scale = from;
        std::int32_t tracker = 4;
        kernels::update_scale(on, {factor, 0.5, 5}, &found, &scale, &tracker);
        EXPECT_EQ(scale, to);
        EXPECT_EQ(tracker, 0);
    }
}

TEST(TakeRatesKernel, ReadsTheLearningRatesAndBeta1OfTheStepCount) {
    kernels::Cpu on;
    std::int64_t count = 0;
    const double yes = 1, no = 0;
    kernels::count_unless(on, &yes, &count);
    EXPECT_EQ(count, 0);
    kernels::count_unless(on, &no, &count);
    kernels::count_unless(on, nullptr, &count);
    EXPECT_EQ(count, 2);
    std::vector<double> rates(12);
    for (int i = 0; i < 12; ++i) rates[static_cast<std::size_t>(i)] = i;
    std::vector<kernels::AdamGroup> groups(2, {.beta2 = 0.5, .maximize = true});
    kernels::take_rates(on, rates.data(), &count, groups);
    const std::vector<kernels::AdamGroup> expected = {
        {.lr = 8, .beta1 = 9, .beta2 = 0.5, .maximize = true},
        {.lr = 10, .beta1 = 11, .beta2 = 0.5, .maximize = true}};
    EXPECT_EQ(groups, expected);
}

}  // namespace
}  // namespace axle
