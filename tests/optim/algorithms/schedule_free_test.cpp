#include "optim/algorithms/schedule_free.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "optim/state_file.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

using optim::AdamWScheduleFree;
using optim::SGDScheduleFree;

const optim::AdamWScheduleFreeOptions kAdamW = {.lr = 0.05,
                                                .betas = {0.8, 0.9},
                                                .eps = 1e-3,
                                                .weight_decay = 0.1,
                                                .warmup_steps = 7,
                                                .r = 1,
                                                .weight_lr_power = 1};
const optim::SGDScheduleFreeOptions kSGD = {
    .lr = 0.2, .beta = 0.7, .weight_decay = 0.1, .warmup_steps = 4, .r = 0.5, .weight_lr_power = 1};

void expect_values(const Params& params, const nlohmann::json& expected, double tolerance) {
    const std::vector<double> actual = values(params);
    for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i].get<double>(), tolerance);
}

template <class O, class Options>
void expect_recorded_trace(const std::string& name, const Options& options, DType dtype,
                           double tolerance) {
    SCOPED_TRACE(name);
    const auto golden = golden_json("optim.json");
    const int every = golden["every"];
    const auto& expected = golden["schedule_free"][name];
    const Params params = parameters(dtype);
    O optimizer(params, options);
    int t = 0;
    for (const auto& row : expected["rows"]) {
        for (int i = 0; i < every; ++i) {
            set_gradients(params, ++t);
            optimizer.step();
        }
        expect_values(params, row["train"], tolerance);
        optimizer.eval();
        expect_values(params, row["eval"], tolerance);
        optimizer.train();
    }
    const auto group =
        nlohmann::json::parse(to_json(optimizer.state_dict()["param_groups"][0], -1));
    for (const auto& [key, value] : expected["group"].items()) {
        if (key == "foreach") continue;  // selects an implementation
        ASSERT_TRUE(group.contains(key)) << key;
        if (value.is_number_float())
            EXPECT_NEAR(group[key].template get<double>(), value.template get<double>(), 1e-12)
                << key;
        else
            EXPECT_EQ(group[key], value) << key;
    }
}

TEST(ScheduleFree, MatchesThePythonPackageOverFiftySteps) {
    for (const auto& [dtype, tolerance] : {std::pair(f64, 1e-11), std::pair(f32, 1e-4)}) {
        SCOPED_TRACE(dtype);
        using AdamWOptions = optim::AdamWScheduleFreeOptions;
        expect_recorded_trace<AdamWScheduleFree>("adamw", AdamWOptions{.lr = 0.02}, dtype,
                                                 tolerance);
        expect_recorded_trace<AdamWScheduleFree>("adamw_options", kAdamW, dtype, tolerance);
        using SGDOptions = optim::SGDScheduleFreeOptions;
        expect_recorded_trace<SGDScheduleFree>("sgd", SGDOptions{.lr = 0.1}, dtype, tolerance);
        expect_recorded_trace<SGDScheduleFree>("sgd_options", kSGD, dtype, tolerance);
    }
}

TEST(ScheduleFree, ContinuesBitExactlyFromAStateDict) {
    const Params params = parameters(), copies = parameters();
    AdamWScheduleFree optimizer(params, kAdamW), loaded(copies, kAdamW);
    const auto steps = [](AdamWScheduleFree& each, const Params& of, int from, int to) {
        for (int t = from; t <= to; ++t) {
            set_gradients(of, t);
            each.step();
        }
    };
    steps(optimizer, params, 1, 5);
    loaded.load_state_dict(optimizer.state_dict());
    for (std::size_t i = 0; i < params.size(); ++i) copies[i].detach().copy_(params[i].detach());
    steps(optimizer, params, 6, 9);
    steps(loaded, copies, 6, 9);
    for (std::size_t i = 0; i < params.size(); ++i)
        expect_same_bits(copies[i].detach(), params[i].detach());
}

TEST(ScheduleFree, RejectsStepsInEvaluationMode) {
    const Params params = parameters();
    SGDScheduleFree optimizer(params);
    set_gradients(params, 1);
    optimizer.eval();
    expect_error<UsageError>({"SGDScheduleFree: step: group 0 is in evaluation mode; call train()"},
                             [&] { optimizer.step(); });
    optimizer.train();
    optimizer.step();
}

TEST(ScheduleFree, GivesSkippedStepsNoWeight) {
    const Params params = parameters(), others = parameters();
    SGDScheduleFree optimizer(params), reference(others);
    const auto step = [](SGDScheduleFree& each, const Params& of, int t, double skip) {
        set_gradients(of, t);
        each.set_scalars(tensor({1.0, 1.0, skip}, {3}, {.dtype = f64}));
        each.step();
    };
    for (const auto& [t, skip] : {std::pair(1, 0.0), std::pair(2, 1.0), std::pair(3, 0.0)}) {
        step(optimizer, params, t, skip);
        if (skip == 0) step(reference, others, t, 0);
    }
    EXPECT_EQ(optimizer.param_groups()[0].k, 2);
    for (std::size_t i = 0; i < params.size(); ++i)
        expect_same_bits(params[i].detach(), others[i].detach());
}

TEST(ScheduleFree, RejectsOptionsOutOfRange) {
    expect_error<ValueError>({"SGDScheduleFree: beta must be in (0, 1): 0"},
                             [] { SGDScheduleFree o(parameters(), {.beta = 0}); });
    expect_error<ValueError>({"AdamWScheduleFree: warmup_steps"},
                             [] { AdamWScheduleFree o(parameters(), {.warmup_steps = -1}); });
}

}  // namespace
}  // namespace axle::tests
