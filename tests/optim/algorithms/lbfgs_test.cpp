#include "optim/algorithms/lbfgs.h"

#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "optim/state_file.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

using optim::LBFGS;
using optim::LBFGSOptions;

// Returns Rosenbrock's function of all elements.
Tensor rosenbrock(const Params& params) {
    const Tensor x = cat({flatten(params[0]), flatten(params[1])});
    const Tensor head = narrow(x, 0, 0, 8), tail = narrow(x, 0, 1, 8);
    return sum(square(tail - square(head)) * 100.0 + square(1.0 - head));
}

double step(LBFGS& optimizer, const Params& params, double sign = 1) {
    const Tensor loss = optimizer.step([&] {
        optimizer.zero_grad();
        Tensor value = rosenbrock(params) * sign;
        value.backward();
        return value;
    });
    return loss.item();
}

void expect_recorded_trace(const std::string& name, const LBFGSOptions& options) {
    SCOPED_TRACE(name);
    const Params params = parameters();
    LBFGS optimizer(params, options);
    const auto golden = golden_json("optim.json");
    for (const auto& row : golden["lbfgs"][name]) {
        const double loss = step(optimizer, params, options.maximize ? -1 : 1);
        EXPECT_NEAR(loss, row["loss"], 1e-8 * (1 + std::abs(loss)));
        const std::vector<double> actual = values(params);
        for (std::size_t i = 0; i < actual.size(); ++i)
            EXPECT_NEAR(actual[i], row["values"][i].get<double>(), 1e-8);
        const Tree state = optimizer.state_dict()["state"]["0"];
        EXPECT_EQ(state["func_evals"].integer(), row["func_evals"]);
        EXPECT_EQ(state["n_iter"].integer(), row["n_iter"]);
    }
}

TEST(LBFGS, MatchesPyTorchWithFixedSteps) {
    expect_recorded_trace("fixed_step", {.lr = 0.1, .max_iter = 4, .history_size = 3});
}

TEST(LBFGS, MatchesPyTorchWithLineSearch) {
    expect_recorded_trace("strong_wolfe", {.max_iter = 6, .line_search_fn = "strong_wolfe"});
    expect_recorded_trace("maximize",
                          {.max_iter = 5, .line_search_fn = "strong_wolfe", .maximize = true});
}

TEST(LBFGS, FindsTheMinimumOfRosenbrocksFunction) {
    const Params params = parameters();
    LBFGS optimizer(params, {.max_iter = 100, .line_search_fn = "strong_wolfe"});
    for (int i = 0; i < 3; ++i) step(optimizer, params);
    for (const double x : values(params)) EXPECT_NEAR(x, 1, 1e-4);
}

TEST(LBFGS, ContinuesBitExactlyFromAStateDict) {
    const LBFGSOptions options = {.max_iter = 5, .line_search_fn = "strong_wolfe"};
    const Params params = parameters(), copies = parameters();
    LBFGS optimizer(params, options), loaded(copies, options);
    step(optimizer, params);
    loaded.load_state_dict(optimizer.state_dict());
    for (std::size_t i = 0; i < params.size(); ++i) copies[i].detach().copy_(params[i].detach());
    EXPECT_EQ(step(optimizer, params), step(loaded, copies));
    for (std::size_t i = 0; i < params.size(); ++i)
        expect_same_bits(copies[i].detach(), params[i].detach());
}

TEST(LBFGS, ContinuesBitExactlyFromAStateFile) {
    const TemporaryFolder folder;
    for (const int max_iter : {1, 30}) {  // histories without and with more than 10 elements
        SCOPED_TRACE(max_iter);
        const LBFGSOptions options = {.max_iter = max_iter, .line_search_fn = "strong_wolfe"};
        const Params params = parameters(), copies = parameters();
        LBFGS optimizer(params, options), loaded(copies, options);
        step(optimizer, params);
        const std::size_t history = optimizer.state_dict()["state"]["0"]["old_dirs"].size();
        EXPECT_EQ(history > 10, max_iter > 1);
        optim::save_state(folder / "state", optimizer);
        optim::load_state(folder / "state", loaded);
        for (std::size_t i = 0; i < params.size(); ++i)
            copies[i].detach().copy_(params[i].detach());
        for (int i = 0; i < 2; ++i) EXPECT_EQ(step(optimizer, params), step(loaded, copies));
        for (std::size_t i = 0; i < params.size(); ++i)
            expect_same_bits(copies[i].detach(), params[i].detach());
        EXPECT_EQ(loaded.state_dict()["state"]["0"]["func_evals"].integer(),
                  optimizer.state_dict()["state"]["0"]["func_evals"].integer());
    }
}

TEST(LBFGS, KeepsItsStateIfALoadedStateDoesNotFit) {
    const Params params = parameters();
    LBFGS optimizer(params), small(Params{params[1]});
    step(optimizer, params);
    Tree tree = optimizer.state_dict();
    tree.set("param_groups", small.state_dict()["param_groups"]);
    expect_error<ShapeError>({"LBFGS: load_state_dict: d must be [3], not [9]"},
                             [&] { small.load_state_dict(tree); });
    EXPECT_TRUE(small.state_dict()["state"].empty());
}

TEST(LBFGS, RejectsStepsWithoutAClosureAndWithScaledGradients) {
    const Params params = parameters();
    LBFGS optimizer(params);
    expect_error<UsageError>({"LBFGS: step() needs a closure"}, [&] { optimizer.step(); });
    set_gradients(params, 1);
    expect_error<UsageError>({"LBFGS: step() needs a closure"}, [&] { optimizer.step(); });
    optimizer.set_scalars(tensor({1.0, 1.0, 0.0}, {3}, {.dtype = f64}));
    expect_error<UsageError>({"LBFGS: a GradScaler"}, [&] { step(optimizer, params); });
}

TEST(LBFGS, RejectsStepsWithTwoGroups) {
    const Params params = parameters();
    LBFGS optimizer(Params{params[0]});
    optimizer.add_param_group({Params{params[1]}});
    expect_error<UsageError>({"LBFGS: all parameters must be in one group: there are 2 groups"},
                             [&] { step(optimizer, params); });
}

TEST(LBFGS, RejectsInvalidOptions) {
    expect_error<ValueError>({"LBFGS: max_iter must be positive: 0"},
                             [] { LBFGS optimizer(parameters(), {.max_iter = 0}); });
    expect_error<ValueError>({"LBFGS: line_search_fn must be strong_wolfe or nullopt: armijo"},
                             [] { LBFGS optimizer(parameters(), {.line_search_fn = "armijo"}); });
}

}  // namespace
}  // namespace axle::tests
