// Tests optimizers of PyTorch: their steps, states and options against recordings, and other
// properties, such as resuming, dtypes and errors.
#include <cmath>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory/memory.h"
#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "optim/state_file.h"
#include "tests/close.h"
#include "tests/optim/recorded_optimizers.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

using optim::Optimizer;

void take_steps(Optimizer& optimizer, const Params& params, int from, int to) {
    for (int t = from; t <= to; ++t) {
        set_gradients(params, t);
        optimizer.step();
    }
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i])));
}

void set_values(const Params& params, const std::vector<double>& values) {
    std::size_t begin = 0;
    for (const Tensor& param : params) {
        const auto size = static_cast<std::size_t>(param.numel());
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
        param.set_data(tensor(std::vector<double>(first, first + static_cast<std::ptrdiff_t>(size)),
                              param.shape(), {.dtype = f64}));
        begin += size;
    }
}

Shape shape_of(const nlohmann::json& buffer) {
    const auto sizes = buffer["shape"].get<std::vector<std::int64_t>>();
    return Shape(std::span<const std::int64_t>(sizes));
}

TEST(TorchOptimizers, MatchPyTorchOverFiftySteps) {
    const auto golden = golden_json("optim.json");
    const int every = golden["every"];
    ASSERT_EQ(golden["optimizers"].size(), recorded_optimizers().size());
    for (const auto& [dtype, tolerance] : {std::pair(f64, 1e-11), std::pair(f32, 1e-4)})
        for (const auto& [name, make] : recorded_optimizers()) {
            SCOPED_TRACE(name);
            SCOPED_TRACE(dtype);
            const Params params = parameters(dtype);
            const auto optimizer = make(params);
            const std::vector<std::vector<double>> rows = golden["optimizers"][name];
            for (std::size_t row = 0; row < rows.size(); ++row) {
                const int t = static_cast<int>(row) * every;
                take_steps(*optimizer, params, t + 1, t + every);
                // Muon rounds to bf16, so a small difference in f32 can become a difference in
                // bf16.
                const bool is_muon = std::string_view(name).starts_with("muon");
                expect_near(values(params), rows[row], is_muon && dtype == f32 ? 1e-3 : tolerance);
            }
        }
}

TEST(TorchOptimizers, SaveTheSameStateAsPyTorch) {
    const auto golden = golden_json("optim.json");
    for (const auto& [name, make] : recorded_optimizers()) {
        SCOPED_TRACE(name);
        const Params params = parameters();
        const auto optimizer = make(params);
        take_steps(*optimizer, params, 1, golden["every"]);
        const Tree state = optimizer->state_dict()["state"];
        for (std::size_t i = 0; i < params.size(); ++i) {
            const auto& expected = golden["states"][name][i];
            const Tree* const saved = state.find(std::to_string(i));
            ASSERT_EQ(saved ? saved->entries().size() : 0, expected.size());
            for (const auto& [key, buffer] : expected.items()) {
                SCOPED_TRACE(key);
                const Tensor value = (*saved)[key].tensor();
                EXPECT_EQ(value.shape(), shape_of(buffer));
                expect_near(value.to_vector(), buffer["values"], 1e-12);
            }
        }
    }
}

// Options of PyTorch that select an implementation, and the option by which PyTorch's AdamW differs
// from Adam.
const std::set<std::string> kOnlyInPyTorch = {"foreach", "capturable", "differentiable", "fused",
                                              "decoupled_weight_decay"};

TEST(TorchOptimizers, SaveTheSameOptionsAsPyTorch) {
    const auto golden = golden_json("optim.json");
    for (const auto& [name, make] : recorded_optimizers()) {
        SCOPED_TRACE(name);
        const auto optimizer = make(parameters());
        const auto groups =
            nlohmann::json::parse(to_json(optimizer->state_dict()["param_groups"], -1));
        const auto& expected = golden["groups"][name];
        ASSERT_EQ(groups.size(), expected.size());
        for (std::size_t g = 0; g < groups.size(); ++g) {
            for (const auto& [key, value] : groups[g].items())
                EXPECT_EQ(value, expected[g][key]) << key;
            for (const auto& [key, value] : expected[g].items())
                EXPECT_TRUE(groups[g].contains(key) || kOnlyInPyTorch.contains(key)) << key;
        }
    }
}

TEST(TorchOptimizers, ContinueFromTheStateOfPyTorch) {
    const auto golden = golden_json("optim.json");
    const int every = golden["every"];
    for (const auto& [name, make] : recorded_optimizers()) {
        SCOPED_TRACE(name);
        const Params params = parameters();
        const auto optimizer = make(params);
        const std::vector<std::vector<double>> rows = golden["optimizers"][name];
        set_values(params, rows[0]);
        Tree states = Tree::map();
        for (std::size_t i = 0; i < params.size(); ++i) {
            Tree state = Tree::map();
            for (const auto& [key, buffer] : golden["states"][name][i].items())
                state.set(key, tensor(buffer["values"].template get<std::vector<double>>(),
                                      shape_of(buffer), {.dtype = f64}));
            states.set(std::to_string(i), std::move(state));
        }
        Tree tree = optimizer->state_dict();
        tree.set("state", std::move(states));
        optimizer->load_state_dict(tree);
        take_steps(*optimizer, params, every + 1, 2 * every);
        expect_near(values(params), rows[1], 1e-11);
    }
}

TEST(TorchOptimizers, ResumeBitExactlyFromAStateDictAndFromAFile) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const auto& [name, make] : recorded_optimizers()) {
        SCOPED_TRACE(name);
        const Params params = parameters(), copies = parameters(), others = parameters();
        const auto optimizer = make(params), from_dict = make(copies), from_file = make(others);
        take_steps(*optimizer, params, 1, 3);
        optimizer->param_groups()[0].lr *= 0.5;
        for (const Params& to : {copies, others})
            for (std::size_t i = 0; i < 2; ++i) to[i].set_data(params[i].detach().clone());
        from_dict->load_state_dict(optimizer->state_dict());
        optim::save_state(folder / name, *optimizer);
        optim::load_state(folder / name, *from_file);
        take_steps(*optimizer, params, 4, 6);
        take_steps(*from_dict, copies, 4, 6);
        take_steps(*from_file, others, 4, 6);
        EXPECT_EQ(values(copies), values(params));
        EXPECT_EQ(values(others), values(params));
    }
}

TEST(TorchOptimizers, ApplyTheScalarsOfTheGradientScaler) {
    for (const auto& [name, make] : recorded_optimizers()) {
        SCOPED_TRACE(name);
        const Params params = parameters(), others = parameters();
        const auto optimizer = make(params), other = make(others);
        Tensor scalars = tensor({1.0 / 1024, 0.5, 1.0}, {3}, {.dtype = f64});
        optimizer->set_scalars(scalars);
        take_steps(*optimizer, params, 1, 2);
        EXPECT_EQ(values(params), values(parameters()));
        scalars.data<double>()[2] = 0;
        for (int t = 1; t <= 3; ++t) {
            set_gradients(params, t), set_gradients(others, t);
            for (const Tensor& param : params) param.set_grad(param.grad() * 1024);
            for (const Tensor& param : others) param.set_grad(param.grad() * 0.5);
            optimizer->step(), other->step();
        }
        EXPECT_EQ(values(params), values(others));
    }
}

// Returns numbers that are exact in f32.
Tensor wave(std::int64_t size, double step, double begin, DType dtype) {
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < size; ++i)
        numbers.push_back(std::cos(begin + step * static_cast<double>(i)));
    return tensor(numbers, {size}, {.dtype = f32}).to(dtype);
}

// Returns parameters that fill several vector registers, with a remainder.
Params long_parameters(DType dtype) {
    return {wave(1003, 0.7, 0, dtype).set_requires_grad(),
            wave(77, 0.3, 1, dtype).set_requires_grad()};
}

// Muon optimizes matrices only, and the parameters of this test are vectors.
TEST(TorchOptimizers, UpdateAllElementsInF32AsInF64) {
    for (const auto& [name, make] : recorded_optimizers()) {
        if (std::string_view(name).starts_with("muon")) continue;
        SCOPED_TRACE(name);
        const Params single = long_parameters(f32), exact = long_parameters(f64);
        const auto optimizer = make(single), reference = make(exact);
        for (int t = 1; t <= 5; ++t) {
            for (const Params& params : {single, exact})
                for (const Tensor& param : params)
                    param.set_grad(wave(param.numel(), 1.3, t, param.dtype()));
            optimizer->step(), reference->step();
        }
        for (std::size_t i = 0; i < exact.size(); ++i)
            expect_close(single[i].detach(), exact[i].detach(), 1e-5);
    }
}

TEST(TorchOptimizers, KeepF32StateOfHalfPrecisionParameters) {
    for (const auto& [name, make] : recorded_optimizers()) {
        SCOPED_TRACE(name);
        const Params half = parameters(bf16), exact = parameters();
        for (std::size_t i = 0; i < 2; ++i) exact[i].set_data(half[i].detach().to(f64));
        const auto optimizer = make(half), reference = make(exact);
        set_gradients(half, 1);
        for (std::size_t i = 0; i < 2; ++i) exact[i].set_grad(half[i].grad().to(f64));
        optimizer->step(), reference->step();
        for (std::size_t i = 0; i < 2; ++i) expect_close(half[i], exact[i], 0.01);
        const Tree state = optimizer->state_dict()["state"];
        for (const auto& [key, entry] : state.entries())
            for (const auto& [buffer, value] : entry.entries())
                EXPECT_EQ(value.tensor().dtype(), f32) << buffer;
    }
}

TEST(RuleOptimizer, AllocatesNoTensorMemoryAfterTheFirstStep) {
    for (const auto& [name, make] : recorded_optimizers()) {
        if (uses_tensor_ops(name)) continue;  // is not a RuleOptimizer
        const Params params = parameters();
        const auto optimizer = make(params);
        set_gradients(params, 1);
        optimizer->step();
        const auto before = host_memory::stats().allocations;
        for (int i = 0; i < 3; ++i) optimizer->step();
        EXPECT_EQ(host_memory::stats().allocations, before) << name;
    }
}

TEST(TorchOptimizers, RejectInvalidOptions) {
    const Params p = parameters();
    const auto refused = [](const char* message, auto&& make) {
        expect_error<ValueError>({message}, make);
    };
    using namespace optim;  // NOLINT: only in this function
    refused("RMSprop: lr must be 0 or more: -1", [&] { RMSprop(p, {.lr = -1}); });
    refused("RMSprop: alpha must be 0 or more: -0.5", [&] { RMSprop(p, {.alpha = -0.5}); });
    refused("RMSprop: eps must be 0 or more: -1", [&] { RMSprop(p, {.eps = -1}); });
    refused("RMSprop: momentum must be 0 or more: -1", [&] { RMSprop(p, {.momentum = -1}); });
    refused("RMSprop: weight_decay must be 0 or more: nan",
            [&] { RMSprop(p, {.weight_decay = std::nan("")}); });
    refused("Adagrad: lr must be 0 or more: -1", [&] { Adagrad(p, {.lr = -1}); });
    refused("Adagrad: lr_decay must be 0 or more: -1", [&] { Adagrad(p, {.lr_decay = -1}); });
    refused("Adagrad: initial_accumulator_value must be 0 or more: -1",
            [&] { Adagrad(p, {.initial_accumulator_value = -1}); });
    refused("Adadelta: eps must be 0 or more: -1", [&] { Adadelta(p, {.eps = -1}); });
    refused("Adadelta: rho must be in [0, 1]: 1.5", [&] { Adadelta(p, {.rho = 1.5}); });
    refused("Adamax: eps must be 0 or more: -1", [&] { Adamax(p, {.eps = -1}); });
    refused("Adamax: betas must be in [0, 1): [1, 0.5]", [&] { Adamax(p, {.betas = {1, 0.5}}); });
    refused("NAdam: betas must be in [0, 1): [0.5, 1]", [&] { NAdam(p, {.betas = {0.5, 1}}); });
    refused("NAdam: momentum_decay must be 0 or more: -1",
            [&] { NAdam(p, {.momentum_decay = -1}); });
    refused("RAdam: weight_decay must be 0 or more: -1", [&] { RAdam(p, {.weight_decay = -1}); });
    refused("RAdam: betas must be in [0, 1): [-0.5, 0]", [&] { RAdam(p, {.betas = {-0.5, 0}}); });
    refused("Lion: lr must be 0 or more: -1", [&] { Lion(p, {.lr = -1}); });
    refused("Lion: betas must be in [0, 1): [0.5, 1]", [&] { Lion(p, {.betas = {0.5, 1}}); });
    refused("Rprop: lr must be 0 or more: -1", [&] { Rprop(p, {.lr = -1}); });
    refused("Rprop: etas[0] must be in (0, 1) and etas[1] above 1: [0.5, 1]", [&] {
        Rprop(p, {.etas = {0.5, 1}});
    });
    refused("ASGD: lambd must be 0 or more: -1", [&] { ASGD(p, {.lambd = -1}); });
    refused("ASGD: alpha must be 0 or more: -1", [&] { ASGD(p, {.alpha = -1}); });
    refused("Adafactor: lr must be 0 or more: -1", [&] { Adafactor(p, {.lr = -1}); });
    refused("Adafactor: beta2_decay must be 0 or less: 0.5",
            [&] { Adafactor(p, {.beta2_decay = 0.5}); });
    refused("Adafactor: eps[0] must be 0 or more: -1", [&] { Adafactor(p, {.eps = {-1, 0}}); });
    refused("Adafactor: eps[1] must be 0 or more: -1", [&] { Adafactor(p, {.eps = {{}, -1}}); });
    refused("Adafactor: d must be 1 or more: 0.5", [&] { Adafactor(p, {.d = 0.5}); });
    refused("Adafactor: stochastic_rounding must be false",
            [&] { Adafactor(p, {.stochastic_rounding = true}); });
}

TEST(RMSprop, CreatesBuffersForMomentumAndCenteringThatAreEnabledLater) {
    const Params params = parameters();
    optim::RMSprop optimizer(params);
    take_steps(optimizer, params, 1, 1);
    EXPECT_FALSE(optimizer.state(params[0])->buffers[1].defined());
    optimizer.param_groups()[0].momentum = 0.9;
    optimizer.param_groups()[0].centered = true;
    take_steps(optimizer, params, 2, 2);
    EXPECT_TRUE(optimizer.state_dict()["state"]["0"].contains("momentum_buffer"));
    EXPECT_TRUE(optimizer.state_dict()["state"]["0"].contains("grad_avg"));
}

TEST(Adafactor, UpdatesStridedParametersInPlace) {
    const Tensor base = parameters()[0].detach().clone();
    Tensor strided = base.transpose(0, 1);
    strided.set_requires_grad();
    const Tensor dense = strided.detach().clone().set_requires_grad();
    optim::Adafactor optimizer({strided}), reference({dense});
    for (int t = 1; t <= 2; ++t) {
        set_gradients({strided}, t), set_gradients({dense}, t);
        optimizer.step(), reference.step();
    }
    EXPECT_EQ(base.transpose(0, 1).to_vector(), dense.to_vector());
}

TEST(Adafactor, SavesAMissingEpsilonAsNull) {
    const Params params = parameters();
    optim::Adafactor optimizer(params), other(params, {.eps = {0.5, 0.25}});
    const Tree state = optimizer.state_dict();
    EXPECT_EQ(to_json(state["param_groups"][0]["eps"], -1), "[null, 0.001]");
    EXPECT_EQ(to_json(other.state_dict()["param_groups"][0]["eps"], -1), "[0.5, 0.25]");
    other.load_state_dict(state);
    EXPECT_EQ(other.param_groups()[0].eps, optimizer.param_groups()[0].eps);
}

TEST(NAdam, RejectsASavedMuProductWithTwoElements) {
    const Params params = parameters();
    optim::NAdam optimizer(params);
    take_steps(optimizer, params, 1, 1);
    Tree tree = optimizer.state_dict(), states = tree["state"], state = states["0"];
    state.set("mu_product", ones({2}));
    states.set("0", std::move(state));
    tree.set("state", std::move(states));
    expect_error<ShapeError>(
        {"NAdam: load_state_dict: mu_product must have one element: it is [2]"},
        [&] { optimizer.load_state_dict(tree); });
}

}  // namespace
}  // namespace axle::tests
