// Tests Prodigy, Lookahead, SparseAdam and AdamW8bit: their steps against the recordings of
// tests/golden/record_special_optim.py, their states, and their errors.
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/local_part.h"
#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "optim/adam.h"
#include "optim/algorithms/adagrad.h"
#include "optim/algorithms/adamw_8bit.h"
#include "optim/algorithms/lookahead.h"
#include "optim/algorithms/prodigy.h"
#include "optim/algorithms/sparse_adam.h"
#include "optim/sgd.h"
#include "optim/state_file.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

using optim::AdamW;
using optim::AdamW8bit;
using optim::Lookahead;
using optim::Optimizer;
using optim::Prodigy;
using optim::SparseAdam;

using SetGradients = std::function<void(const Params&, int)>;
using Make = std::function<std::unique_ptr<Optimizer>(const Params&)>;

struct Special {
    const char* section;
    const char* name;
    Make make;
    double tolerance = 1e-4;  // tolerance of f32
};

template <class O, class... Options>
Make making(Options... options) {
    return [=](const Params& params) { return std::make_unique<O>(params, options...); };
}

std::vector<Special> specials() {
    using LookaheadAdamW = Lookahead<AdamW>;
    using LookaheadSGD = Lookahead<optim::SGD>;
    using LookaheadRMSprop = Lookahead<optim::RMSprop>;
    return {
        // Prodigy's estimate d grows from 1e-6 to 1 within a few steps, which enlarges rounding
        // errors of f32.
        {"prodigy", "prodigy", making<Prodigy>(), 1e-2},
        {"prodigy", "prodigy_large_d0",
         making<Prodigy>(optim::ProdigyOptions{.use_bias_correction = true, .d0 = 1e-2})},
        {"prodigy", "prodigy_options",
         making<Prodigy>(optim::ProdigyOptions{.lr = 0.5,
                                               .betas = {0.8, 0.95},
                                               .beta3 = 0.9,
                                               .eps = 1e-6,
                                               .weight_decay = 0.1,
                                               .use_bias_correction = true,
                                               .safeguard_warmup = true,
                                               .d0 = 1e-3,
                                               .d_coef = 0.7,
                                               .growth_rate = 1.5,
                                               .slice_p = 2})},
        {"prodigy", "prodigy_coupled",
         making<Prodigy>(optim::ProdigyOptions{
             .betas = {0, 0.99}, .weight_decay = 0.05, .decouple = false, .d0 = 1e-2})},
        {"prodigy", "prodigy_two_groups",
         [](const Params& p) {
             return std::make_unique<Prodigy>(std::vector<Prodigy::Group>{
                 {{p[0]}, {.weight_decay = 0.1, .d0 = 1e-2}}, {{p[1]}, {.lr = 0, .d0 = 1e-2}}});
         }},
        {"lookahead", "lookahead_adamw", making<LookaheadAdamW>(optim::AdamWOptions{.lr = 0.03})},
        {"lookahead", "lookahead_sgd",
         making<LookaheadSGD>(optim::SGDOptions{.lr = 0.05},
                              optim::LookaheadOptions{.k = 3, .alpha = 0.8})},
        {"lookahead", "lookahead_rmsprop",
         making<LookaheadRMSprop>(optim::RMSpropOptions{.lr = 0.01, .momentum = 0.5},
                                  optim::LookaheadOptions{.k = 7, .alpha = 0.2})},
        {"sparse", "sparse_adam", making<SparseAdam>(optim::SparseAdamOptions{.lr = 0.03})},
        {"sparse", "sparse_adam_options",
         making<SparseAdam>(optim::SparseAdamOptions{
             .lr = 0.05, .betas = {0.8, 0.9}, .eps = 1e-3, .maximize = true})},
    };
}

Tensor wave(const Shape& shape, int first, DType dtype) {
    std::vector<double> numbers;
    for (int i = 0; i < numel(shape); ++i) numbers.push_back(std::cos(0.7 * (first + i)));
    return tensor(numbers, shape, {.dtype = dtype, .requires_grad = true});
}

Params parameters_of(const Special& special, DType dtype) {
    if (special.section != std::string("sparse")) return parameters(dtype);
    return {wave({5, 3}, 0, dtype), wave({4}, 15, dtype)};
}

// Sets the gradients of step t. Row i has a gradient only if i + t is a multiple of 3 (first
// parameter) or of 2 (second parameter); the gradients of all other rows are zero.
void set_sparse_gradients(const Params& params, int t) {
    set_gradients(params, t);
    std::int64_t every = 3;
    for (const Tensor& param : params) {
        Tensor gradient = param.grad();
        for (std::int64_t i = 0; i < param.size(0); ++i)
            if ((i + t) % every != 0) gradient.select(0, i).fill_(0);
        --every;
    }
}

void take_steps(const Special& special, Optimizer& optimizer, const Params& params, int from,
                int to) {
    const bool is_sparse = special.section == std::string("sparse");
    for (int t = from; t <= to; ++t) {
        (is_sparse ? set_sparse_gradients : set_gradients)(params, t);
        optimizer.step();
    }
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
}

// Options of the references that select an implementation or a class of Axle, and values that are
// computed from other values.
const std::set<std::string> kNotSaved = {
    "foreach",     "capturable", "differentiable", "fused", "decoupled_weight_decay",
    "fsdp_in_use", "d_denom",    "d_hat"};

void expect_options(const nlohmann::json& groups, const nlohmann::json& expected) {
    ASSERT_EQ(groups.size(), expected.size());
    for (std::size_t g = 0; g < groups.size(); ++g)
        for (const auto& [key, value] : expected[g].items()) {
            if (kNotSaved.contains(key)) continue;
            ASSERT_TRUE(groups[g].contains(key)) << key;
            if (value.is_number_float())
                EXPECT_NEAR(groups[g][key].get<double>(), value.get<double>(),
                            1e-11 * (1 + std::abs(value.get<double>())))
                    << key;
            else
                EXPECT_EQ(groups[g][key], value) << key;
        }
}

void expect_states(const Tree& states, const nlohmann::json& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const Tree& saved = states[std::to_string(i)];
        for (const auto& [key, buffer] : expected[i].items()) {
            SCOPED_TRACE(key);
            const Tensor value = saved[key].tensor();
            const std::vector<std::int64_t> shape = buffer["shape"];
            EXPECT_EQ(value.shape(), Shape(std::span<const std::int64_t>(shape)));
            expect_near(value.to_vector(), buffer["values"], 1e-11);
        }
    }
}

TEST(SpecialOptimizers, MatchRecordedReferencesOverFiftySteps) {
    const auto golden = golden_json("special_optim.json");
    const int every = golden["every"];
    for (const DType dtype : {f64, f32})
        for (const Special& special : specials()) {
            SCOPED_TRACE(special.name);
            SCOPED_TRACE(dtype);
            const auto& expected = golden[special.section][special.name];
            const Params params = parameters_of(special, dtype);
            const auto optimizer = special.make(params);
            const std::vector<std::vector<double>> rows = expected["rows"];
            for (std::size_t row = 0; row < rows.size(); ++row) {
                const int t = static_cast<int>(row) * every;
                take_steps(special, *optimizer, params, t + 1, t + every);
                expect_near(values(params), rows[row], dtype == f64 ? 1e-11 : special.tolerance);
            }
            if (dtype == f32) continue;
            const Tree tree = optimizer->state_dict();
            expect_states(tree["state"], expected["states"]);
            expect_options(nlohmann::json::parse(to_json(tree["param_groups"], -1)),
                           expected["groups"]);
        }
}

TEST(SpecialOptimizers, ResumeBitExactlyFromAStateDictAndFromAFile) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const Special& special : specials()) {
        SCOPED_TRACE(special.name);
        const auto fresh = [&] { return parameters_of(special, f64); };
        const Params params = fresh(), copies = fresh(), others = fresh();
        const auto optimizer = special.make(params), from_dict = special.make(copies),
                   from_file = special.make(others);
        take_steps(special, *optimizer, params, 1, 8);
        for (const Params& to : {copies, others})
            for (std::size_t i = 0; i < 2; ++i) to[i].set_data(params[i].detach().clone());
        from_dict->load_state_dict(optimizer->state_dict());
        optim::save_state(folder / special.name, *optimizer);
        optim::load_state(folder / special.name, *from_file);
        take_steps(special, *optimizer, params, 9, 20);
        take_steps(special, *from_dict, copies, 9, 20);
        take_steps(special, *from_file, others, 9, 20);
        EXPECT_EQ(values(copies), values(params));
        EXPECT_EQ(values(others), values(params));
    }
}

TEST(SpecialOptimizers, ApplyTheScalarsOfTheGradientScaler) {
    for (const Special& special : specials()) {
        SCOPED_TRACE(special.name);
        const Params params = parameters_of(special, f64), others = parameters_of(special, f64);
        const auto optimizer = special.make(params), other = special.make(others);
        Tensor scalars = tensor({1.0 / 1024, 0.5, 1.0}, {3}, {.dtype = f64});
        optimizer->set_scalars(scalars);
        take_steps(special, *optimizer, params, 1, 6);
        EXPECT_EQ(values(params), values(parameters_of(special, f64)));
        scalars.data<double>()[2] = 0;
        for (int t = 1; t <= 8; ++t) {
            set_gradients(params, t), set_gradients(others, t);
            for (const Tensor& param : params) param.set_grad(param.grad() * 1024);
            for (const Tensor& param : others) param.set_grad(param.grad() * 0.5);
            optimizer->step(), other->step();
        }
        EXPECT_EQ(values(params), values(others));
    }
}

TEST(SpecialOptimizers, RejectInvalidOptions) {
    const Params p = parameters();
    const auto refused = [](const char* message, auto&& make) {
        expect_error<ValueError>({message}, make);
    };
    refused("Prodigy: d0 must be above 0: 0", [&] { Prodigy(p, {.d0 = 0}); });
    refused("Prodigy: eps must be above 0: 0", [&] { Prodigy(p, {.eps = 0}); });
    refused("Prodigy: slice_p must be above 0: 0", [&] { Prodigy(p, {.slice_p = 0}); });
    refused("Prodigy: lr must be 0 or more: -1", [&] { Prodigy(p, {.lr = -1}); });
    refused("Prodigy: betas must be in [0, 1): [1, 0.5]", [&] { Prodigy(p, {.betas = {1, 0.5}}); });
    refused("Prodigy: lr must be the same in all groups, or 0: 2 and 3", [&] {
        Prodigy optimizer(std::vector<Prodigy::Group>{{{p[0]}, {.lr = 2}}, {{p[1]}, {.lr = 3}}});
        set_gradients(p, 1);
        optimizer.step();
    });
    refused("Lookahead: k must be 1 or more: 0", [&] { Lookahead<AdamW>(p, {}, {.k = 0}); });
    refused("Lookahead: alpha must be in [0, 1]: 1.5",
            [&] { Lookahead<AdamW>(p, {}, {.alpha = 1.5}); });
    refused("SparseAdam: lr must be above 0: 0", [&] { SparseAdam(p, {.lr = 0}); });
    refused("SparseAdam: eps must be above 0: 0", [&] { SparseAdam(p, {.eps = 0}); });
    refused("AdamW8bit: weight_decay must be 0 or more: -1",
            [&] { AdamW8bit(p, {.weight_decay = -1}); });
    refused("AdamW8bit: stochastic_rounding must be false",
            [&] { AdamW8bit(p, {.stochastic_rounding = true}); });
}

TEST(ProdigySparseAdamAndAdamW8bit, RejectShardedParameters) {
    const auto refused = [](const char* name, const Make& make) {
        SCOPED_TRACE(name);
        const Tensor param = wave({4}, 0, f32);
        const Tensor part = wave({2}, 0, f32);
        const auto optimizer = make({param});
        autograd::set_local_part(param, part);
        part.set_grad(ones({2}));
        expect_error<UsageError>({name, "parameters must not be sharded"},
                                 [&] { optimizer->step(); });
    };
    refused("Prodigy", making<Prodigy>());
    refused("SparseAdam", making<SparseAdam>());
    refused("AdamW8bit", making<AdamW8bit>());
}

TEST(Lookahead, UpdatesTheLocalPartOfAShardedParameter) {
    const Tensor whole = wave({8}, 0, f64), param = wave({8}, 0, f64);
    Tensor part = narrow(param.detach(), 0, 4, 4).clone().set_requires_grad();
    Lookahead<AdamW> optimizer({param}, {.lr = 0.1}, {.k = 2}),
        reference({whole}, {.lr = 0.1}, {.k = 2});
    autograd::set_local_part(param, part, 4);
    for (int t = 1; t <= 5; ++t) {
        const Tensor gradient = wave({8}, t, f64).detach();
        whole.set_grad(gradient);
        part.set_grad(narrow(gradient, 0, 4, 4).clone());
        optimizer.step(), reference.step();
    }
    expect_same_bits(part.detach(), narrow(whole.detach(), 0, 4, 4));
}

TEST(Lookahead, UpdatesStridedParametersInPlace) {
    const Tensor base = parameters()[0].detach().clone();
    Tensor strided = base.transpose(0, 1);
    strided.set_requires_grad();
    const Tensor dense = strided.detach().clone().set_requires_grad();
    Lookahead<AdamW> optimizer({strided}, {}, {.k = 2}), reference({dense}, {}, {.k = 2});
    for (int t = 1; t <= 4; ++t) {
        set_gradients({strided}, t), set_gradients({dense}, t);
        optimizer.step(), reference.step();
    }
    EXPECT_EQ(base.transpose(0, 1).to_vector(), dense.to_vector());
}

TEST(SparseAdam, KeepsRowsWithoutGradient) {
    const Tensor weight = wave({6, 4}, 0, f32);
    const Tensor before = weight.detach().clone();
    SparseAdam optimizer({weight});
    for (int t = 0; t < 2; ++t) {
        optimizer.zero_grad();
        sum(embedding(tensor({1, 4, 1}), weight)).backward();
        optimizer.step();
    }
    for (const std::int64_t row : {0, 1, 2, 3, 4, 5}) {
        const bool same =
            weight.detach().select(0, row).to_vector() == before.select(0, row).to_vector();
        EXPECT_EQ(same, row != 1 && row != 4) << row;
    }
}

}  // namespace
}  // namespace axle::tests
