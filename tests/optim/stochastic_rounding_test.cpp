#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"

namespace axle::tests {
namespace {

using optim::Adam;
using optim::AdamW;
using optim::SGD;

// Trains w from 2 towards 3 with the gradient w - 3, in 400 steps much smaller than the bf16
// spacing. Returns the mean of w.
template <class O, class Options>
double descend(DType dtype, Options options, bool stochastic) {
    manual_seed(7);
    options.stochastic_rounding = stochastic;
    const Tensor w = full({4096}, 2, {.dtype = dtype, .requires_grad = true});
    O optimizer({w}, options);
    for (int t = 0; t < 400; ++t) {
        w.set_grad(to(w.detach(), f32) - 3);
        optimizer.step();
    }
    return to(w.detach(), f64).mean().item();
}

TEST(StochasticRounding, AppliesUpdatesThatRoundingToNearestLoses) {
    const auto compare = []<class O, class Options>(Options options) {
        const double exact = descend<O>(f32, options, false);
        EXPECT_GT(exact, 2.2);
        EXPECT_EQ(descend<O>(bf16, options, false), 2);
        EXPECT_NEAR(descend<O>(bf16, options, true), exact, 0.01);
    };
    compare.operator()<SGD>(optim::SGDOptions{.lr = 0.001});
    compare.operator()<SGD>(optim::SGDOptions{.lr = 0.0001, .momentum = 0.9});
    compare.operator()<AdamW>(optim::AdamWOptions{.lr = 0.001, .weight_decay = 0});
    compare.operator()<Adam>(optim::AdamOptions{.lr = 0.001});
}

TEST(StochasticRounding, DoesNotAffectF32AndF64Parameters) {
    const GeneratorState before = generator_state();
    for (const DType dtype : {f32, f64}) {
        const Params params = parameters(dtype), others = parameters(dtype);
        AdamW optimizer(params, {.stochastic_rounding = true}), other(others);
        set_gradients(params, 1), set_gradients(others, 1);
        optimizer.step(), other.step();
        EXPECT_EQ(values(params), values(others));
    }
    EXPECT_EQ(generator_state(), before);
}

TEST(StochasticRounding, ResumesBitExactlyAndDependsOnItsSeed) {
    const auto resume = []<class O, class Options>(Options options) {
        options.stochastic_rounding = true;
        const Params params = parameters(bf16), others = parameters(bf16);
        O optimizer(params, options);
        for (int t = 1; t <= 3; ++t) set_gradients(params, t), optimizer.step();
        for (std::size_t i = 0; i < 2; ++i) others[i].set_data(params[i].detach().clone());
        const Tree saved = optimizer.state_dict();
        EXPECT_TRUE(saved["param_groups"][0]["stochastic_rounding"].boolean());
        EXPECT_EQ(saved["state"]["1"]["step"].tensor().item(), 3);
        O other(others);
        other.load_state_dict({{"param_groups", from_json(to_json(saved["param_groups"]))},
                               {"state", saved["state"]}});
        EXPECT_EQ(other.param_groups()[0].rounding_seed, optimizer.param_groups()[0].rounding_seed);
        for (int t = 4; t <= 20; ++t) {
            set_gradients(params, t), set_gradients(others, t);
            optimizer.step(), other.step();
        }
        EXPECT_EQ(values(params), values(others));
        other.param_groups()[0].rounding_seed = 1;
        for (int t = 21; t <= 40; ++t) {
            set_gradients(params, t), set_gradients(others, t);
            optimizer.step(), other.step();
        }
        EXPECT_NE(values(params), values(others));
    };
    resume.operator()<SGD>(optim::SGDOptions{.lr = 0.01});
    resume.operator()<SGD>(optim::SGDOptions{.lr = 0.01, .momentum = 0.9, .dampening = 0.5});
    resume.operator()<AdamW>(optim::AdamWOptions{.lr = 0.01});
}

TEST(StochasticRounding, UsesOneSeedPerGroupAndOneStreamPerParameter) {
    manual_seed(11);
    Params params;
    for (int i = 0; i < 3; ++i) params.push_back(ones({512}, {bf16}).set_requires_grad());
    const optim::SGDOptions options = {.lr = 1, .stochastic_rounding = true};
    SGD optimizer({{{params[0], params[1]}, options}, {{params[2]}, options}});
    optimizer.param_groups()[1].rounding_seed = 4;
    for (const Tensor& p : params) p.set_grad(full({512}, 0x1p-9, {.dtype = f32}));
    optimizer.step();
    const auto seed = optimizer.param_groups()[0].rounding_seed;
    ASSERT_TRUE(seed);
    EXPECT_EQ(optimizer.param_groups()[1].rounding_seed, 4u);
    EXPECT_EQ(generator_state(), (GeneratorState{11, 1}));
    optimizer.step();
    EXPECT_EQ(optimizer.param_groups()[0].rounding_seed, seed);
    for (int i = 0; i < 3; ++i)
        EXPECT_NE(params[static_cast<std::size_t>(i)].to_vector(),
                  params[static_cast<std::size_t>((i + 1) % 3)].to_vector());
}

}  // namespace
}  // namespace axle::tests
