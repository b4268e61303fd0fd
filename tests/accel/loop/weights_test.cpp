// Tests losses that are weighted sums. Their gradients are sums over all tokens, divided by the
// number of all tokens.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "accel/local_sgd.h"
#include "core/system/numerics.h"
#include "nlohmann/json.hpp"
#include "optim/sgd.h"
#include "tests/accel/case_ranks.h"
#include "tests/accel/training.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using nlohmann::json;
using tests::expect_error;
using Group = std::shared_ptr<dist::ProcessGroup>;
using Numbers = std::vector<double>;

// A model with the parameter a, whose loss for a token t is (a t - 1)^2.
struct Model : nn::Model<Model> {
    explicit Model(double start = 0.5)
        : a(tensor({start}, Shape{}, {.dtype = f64, .requires_grad = true})) {}
    Tensor a;
    Tensor forward(const Numbers& tokens) {
        const auto n = static_cast<std::int64_t>(tokens.size());
        const Tensor error = a * tensor(tokens, {n}, {.dtype = f64}) - 1.0;
        return (error * error).sum();
    }
    void visit(nn::Visitor& v) override { v("a", a); }
    double gradient() const { return a.grad().item(); }
};

double count(const Numbers& tokens) { return static_cast<double>(tokens.size()); }

double gradient_of(double a, const Numbers& tokens) {
    double sum = 0;
    for (const double x : tokens) sum += 2 * (a * x - 1) * x;
    return sum;
}

accel::AcceleratorOptions options(const Group& group, int steps,
                                  const std::string& precision = "no",
                                  bool sync_each_batch = false) {
    return {.mixed_precision = precision,
            .cpu = true,
            .gradient_accumulation_plugin =
                accel::GradientAccumulationPlugin{.num_steps = steps,
                                                  .sync_each_batch = sync_each_batch},
            .process_group = group};
}

// The model and the optimizer of one update of a recorded case.
struct Update {
    const json& c;
    const Group& group;
    Model model{c["a"].get<double>()};
    optim::SGD sgd{model.parameters(), {.lr = 1}};

    double run(Accelerator& accelerator, bool weighted) {
        const auto rank = static_cast<std::size_t>(group->rank());
        for (const json& batch : c["microbatches"][rank]) {
            const auto tokens = batch.get<Numbers>();
            auto scope = accelerator.accumulate(model);
            const Tensor sum = model(tokens);
            if (weighted)
                accelerator.backward(sum, count(tokens));
            else
                accelerator.backward(sum / count(tokens));
        }
        EXPECT_TRUE(accelerator.sync_gradients());
        return accelerator.clip_grad_norm_(model.parameters(), 1e9).item();
    }
};

void follow(const json& c, const Group& group) {
    for (const char* precision : {"no", "fp16"})
        for (const bool each : {false, true}) {
            SCOPED_TRACE(str(c.dump(), " ", precision, each ? " sync_each_batch" : ""));
            Accelerator accelerator(options(group, c["num_steps"], precision, each));
            Update update{c, group};
            accelerator.prepare(update.model, update.sgd);
            const double expected = c["grad_token_mean"], start = c["a"];
            EXPECT_NEAR(update.run(accelerator, true), std::abs(expected), 1e-12);
            EXPECT_NEAR(update.model.gradient(), expected, 1e-12);
            update.sgd.step();
            EXPECT_NEAR(update.model.a.item(), start - expected, 1e-12);
            // Without weights, the gradient is a mean of means, as in Accelerate.
            update.model.a.detach().fill_(start);
            update.sgd.zero_grad();
            update.run(accelerator, false);
            EXPECT_NEAR(update.model.gradient(), c["grad_accelerate_default_mean_of_means"], 1e-12);
        }
}

class WeightedLoss : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override { use_deterministic_algorithms(GetParam()); }
    void TearDown() override { use_deterministic_algorithms(false); }
};
INSTANTIATE_TEST_SUITE_P(DeterministicOrNot, WeightedLoss, testing::Bool());

// Covers 7.variable-length, 3.backward.
TEST_P(WeightedLoss, DividesGradientsByAllTokensAndMatchesAccelerateIfUnweighted) {
    const auto file = tests::vectors("variable_token_accumulation.json");
    tests::on_ranks_of_each(file, follow);
}

// Returns the tokens of one part of a micro-batch. The number of tokens varies.
Numbers tokens_of(int process, int micro_batch, int part) {
    Numbers tokens;
    const int n = 1 + (3 * process + 5 * micro_batch + 2 * part) % 4;
    for (int i = 0; i < n; ++i)
        tokens.push_back(std::sin(process + 7 * micro_batch + 3 * part + i));
    return tokens;
}

// The first loss of a micro-batch depends on one model, the second loss on both models.
// Covers 7.several, 7.variable-length, 30.5.
TEST_P(WeightedLoss, DividesGradientsOfEachModelByTheWeightsOfItsLosses) {
    constexpr int kSteps = 3;
    for (const int size : {1, 2, 3})
        tests::on_ranks(size, [&](const Group& group) {
            Accelerator accelerator(options(group, kSteps));
            Model first(0.5), second(0.25);
            optim::SGD sgd_first(first.parameters(), {.lr = 0.1});
            optim::SGD sgd_second(second.parameters(), {.lr = 0.1});
            accelerator.prepare(first, second, sgd_first, sgd_second);
            for (const bool set_to_none : {true, false}) {
                double of_first = 0, of_second = 0, for_first = 0, for_second = 0;
                for (int p = 0; p < size; ++p)
                    for (int m = 0; m < kSteps; ++m) {
                        const Numbers one = tokens_of(p, m, 0), both = tokens_of(p, m, 1);
                        of_first +=
                            gradient_of(first.a.item(), one) + gradient_of(first.a.item(), both);
                        of_second += gradient_of(second.a.item(), both);
                        for_first += count(one) + count(both), for_second += count(both);
                    }
                for (int m = 0; m < kSteps; ++m) {
                    const Numbers one = tokens_of(group->rank(), m, 0);
                    const Numbers both = tokens_of(group->rank(), m, 1);
                    auto scope = accelerator.accumulate(first, second);
                    accelerator.backward(first(one), count(one));
                    accelerator.backward(first(both) + second(both),
                                         full({1}, count(both), {.dtype = i64}));
                }
                EXPECT_NEAR(first.gradient(), of_first / for_first, 1e-12);
                EXPECT_NEAR(second.gradient(), of_second / for_second, 1e-12);
                sgd_first.step(), sgd_second.step();
                sgd_first.zero_grad(set_to_none), sgd_second.zero_grad(set_to_none);
            }
        });
}

TEST_P(WeightedLoss, GivesAZeroGradientOnlyIfTheWeightsOfAllProcessesAreZero) {
    tests::on_ranks(2, [&](const Group& group) {
        Accelerator accelerator(options(group, 1));
        Model model;
        optim::SGD sgd(model.parameters(), {.lr = 1});
        accelerator.prepare(model, sgd);
        accelerator.backward(model(Numbers{}), 0);
        EXPECT_EQ(model.gradient(), 0);
        sgd.step(), sgd.zero_grad();
        // The process without tokens gets the gradient of the other process.
        const Numbers tokens = group->rank() == 0 ? Numbers() : Numbers{0.5, -1};
        accelerator.backward(model(tokens), count(tokens));
        EXPECT_NEAR(model.gradient(), gradient_of(0.5, {0.5, -1}) / 2, 1e-12);
    });
}

TEST_P(WeightedLoss, IncludesGradientsAccumulatedWithoutSync) {
    tests::on_ranks(2, [&](const Group& group) {
        Accelerator accelerator(options(group, 1));
        Model model;
        accelerator.prepare(model);
        const auto of = [&](int m) { return tokens_of(group->rank(), m, 0); };
        {
            const auto scope = accelerator.no_sync();
            accelerator.backward(model(of(0)), count(of(0)));
        }
        accelerator.backward(model(of(1)), count(of(1)));
        double sum = 0, weight = 0;
        for (const int p : {0, 1})
            for (const int m : {0, 1})
                sum += gradient_of(0.5, tokens_of(p, m, 0)), weight += count(tokens_of(p, m, 0));
        EXPECT_NEAR(model.gradient(), sum / weight, 1e-12);
    });
}

// A checkpoint that is saved in the middle of an update by 1 or 2 processes is loaded by 1 or 2
// processes.
// Covers 7.variable-length.
TEST(WeightedLossCheckpoint, CompletesAnUpdateOnOneOrTwoProcessesAndRejectsLossesWithoutWeight) {
    for (const int saving : {1, 2})
        for (const int loading : {1, 2}) {
            const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
            tests::on_ranks(saving, [&](const Group& group) {
                Accelerator accelerator(options(group, 2));
                Model model;
                optim::SGD sgd(model.parameters(), {.lr = 1});
                accelerator.prepare(model, sgd);
                const Numbers tokens = tokens_of(group->rank(), 0, 0);
                auto scope = accelerator.accumulate(model);
                accelerator.backward(model(tokens), count(tokens));
                accelerator.save_state(folder / "state");
            });
            tests::on_ranks(loading, [&](const Group& group) {
                Accelerator accelerator(options(group, 2));
                Model model(3);
                optim::SGD sgd(model.parameters(), {.lr = 1});
                accelerator.prepare(model, sgd);
                accelerator.load_state(folder / "state");
                const Numbers tokens = tokens_of(group->rank(), 1, 0);
                auto scope = accelerator.accumulate(model);
                accelerator.backward(model(tokens), count(tokens));
                EXPECT_TRUE(accelerator.sync_gradients());
                double sum = 0, weight = 0;
                for (int p = 0; p < saving; ++p)
                    sum += gradient_of(0.5, tokens_of(p, 0, 0)),
                        weight += count(tokens_of(p, 0, 0));
                for (int p = 0; p < loading; ++p)
                    sum += gradient_of(0.5, tokens_of(p, 1, 0)),
                        weight += count(tokens_of(p, 1, 0));
                EXPECT_NEAR(model.gradient(), sum / weight, 1e-12) << saving << " " << loading;
                expect_error<UsageError>({"backward", "with and without a weight"},
                                         [&] { accelerator.backward(model(tokens)); });
            });
        }
}

// Covers 3.join_uneven_inputs.
TEST(WeightedLosses, IgnoreProcessesWithoutData) {
    tests::on_ranks(2, [&](const Group& group) {
        Accelerator accelerator(options(group, 1));
        Model model;
        optim::SGD sgd(model.parameters(), {.lr = 0});
        accelerator.prepare(model, sgd);
        const auto scope = accelerator.join_uneven_inputs({&model}, false);
        for (int m = 0; m <= group->rank(); ++m) {
            const Numbers tokens = tokens_of(group->rank(), m, 0);
            accelerator.backward(model(tokens), count(tokens));
            if (m == 1) {
                EXPECT_NEAR(model.gradient(), gradient_of(0.5, tokens) / count(tokens), 1e-12);
            }
            sgd.step(), sgd.zero_grad();
        }
    });
}

// Covers 20.LocalSGD.
TEST(WeightedLosses, UseLocalWeightsUnderLocalSgd) {
    tests::on_ranks(2, [&](const Group& group) {
        Accelerator accelerator(options(group, 1));
        Model model;
        optim::SGD sgd(model.parameters(), {.lr = 1});
        accelerator.prepare(model, sgd);
        accel::LocalSGD local(accelerator, model, 2);
        const Numbers tokens = tokens_of(group->rank(), 0, 0);
        accelerator.backward(model(tokens), count(tokens));
        EXPECT_NEAR(model.gradient(), gradient_of(0.5, tokens) / count(tokens), 1e-12);
    });
}

// If the gradients of one process overflow, no process takes a step, and the sums of the loss
// weights are reset.
// Covers 8.GradScaler.
TEST(WeightedLosses, DropTheirWeightsWhenTheScalerSkipsAStep) {
    tests::on_ranks(2, [&](const Group& group) {
        Accelerator accelerator(options(group, 2, "fp16"));
        Model model;
        optim::SGD sgd(model.parameters(), {.lr = 1});
        accelerator.prepare(model, sgd);
        for (const bool overflows : {true, false}) {
            double sum = 0, weight = 0;
            for (int m = 0; m < 2; ++m) {
                for (const int p : {0, 1})
                    sum += gradient_of(0.5, tokens_of(p, m, 0)),
                        weight += count(tokens_of(p, m, 0));
                const Numbers tokens = tokens_of(group->rank(), m, 0);
                auto scope = accelerator.accumulate(model);
                const bool here = overflows && group->rank() == 1 && m == 0;
                const double factor = here ? std::numeric_limits<double>::infinity() : 1;
                accelerator.backward(model(tokens) * factor, count(tokens));
                sgd.step(), sgd.zero_grad();
            }
            EXPECT_EQ(accelerator.optimizer_step_was_skipped(), overflows);
            EXPECT_NEAR(model.a.item(), overflows ? 0.5 : 0.5 - sum / weight, 1e-12);
        }
    });
}

struct TwoParts : nn::Model<TwoParts> {
    Tensor a = tensor({0.5}, Shape{}, {.dtype = f64, .requires_grad = true});
    Tensor b = tensor({0.5}, Shape{}, {.dtype = f64, .requires_grad = true});
    Tensor forward(bool with_b) { return with_b ? a + b : a * 1.0; }
    void visit(nn::Visitor& v) override { v("a", a), v("b", b); }
};

TEST(WeightedLosses, ScaleTheGradientsOfAllOptimizersOfAModel) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    TwoParts model;
    optim::SGD first({model.a}, {.lr = 1}), second({model.b}, {.lr = 1});
    accelerator.prepare(model, first, second);
    for (const bool with_b : {false, true}) {
        auto scope = accelerator.accumulate(model);
        accelerator.backward(model(with_b), with_b ? 2 : 6);
    }
    EXPECT_EQ(model.a.grad().item(), 2.0 / 8);
    EXPECT_EQ(model.b.grad().item(), 1.0 / 8);
}

TEST(WeightedLosses, ScaleTheGradientOfAParameterThatReplacesAnotherInItsGroup) {
    Accelerator accelerator({.cpu = true});
    const auto make = [] { return tensor({0.5}, {1}, {.dtype = f64, .requires_grad = true}); };
    const Tensor a = make(), before = make(), after = make();
    optim::SGD optimizer({a, before}, {.lr = 1});
    accelerator.prepare(optimizer);
    accelerator.backward((a + before).sum(), 4);
    EXPECT_EQ(before.grad().item(), 1.0 / 4);
    optimizer.zero_grad();
    optimizer.param_groups()[0].params[1] = after;
    accelerator.backward((a + after).sum(), 4);
    EXPECT_EQ(a.grad().item(), 1.0 / 4);
    EXPECT_EQ(after.grad().item(), 1.0 / 4);
}

TEST(WeightedLosses, DropTheirWeightsOnFreeMemory) {
    Accelerator accelerator({.cpu = true});
    Model model;
    optim::SGD sgd(model.parameters(), {.lr = 1});
    accelerator.prepare(model, sgd);
    accelerator.backward(model(Numbers{1, 2}), 2);
    accelerator.free_memory();
    sgd.zero_grad();
    accelerator.prepare(model, sgd);
    accelerator.backward(model(Numbers{1}));
    EXPECT_EQ(model.gradient(), gradient_of(0.5, {1}));
}

TEST(WeightedLosses, PropagateNanInWeightTensors) {
    Accelerator accelerator({.cpu = true});
    Model model;
    optim::SGD sgd(model.parameters(), {.lr = 1});
    accelerator.prepare(model, sgd);
    accelerator.backward(model(Numbers{1, 2}), tensor({std::nan("")}, {1}));
    EXPECT_TRUE(std::isnan(model.gradient()));
}

TEST(WeightedLosses, RejectInvalidWeightsUnpreparedModelsAndMixturesWithUnweightedLosses) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    Model model, other;
    optim::SGD sgd(model.parameters(), {.lr = 1});
    accelerator.prepare(model, sgd);
    const auto backward = [&](auto weight) { accelerator.backward(model(Numbers{1, 2}), weight); };
    expect_error<ValueError>({"backward: the weight must", "-1"}, [&] { backward(-1); });
    expect_error<ValueError>({"backward: the weight must", "nan"}, [&] { backward(std::nan("")); });
    expect_error<ShapeError>({"backward: the weight must have one element", "[2]"},
                             [&] { backward(ones({2})); });
    expect_error<UsageError>({"backward", "no parameter of a prepared model"},
                             [&] { accelerator.backward(other(Numbers{1}), 1); });
    auto scope = accelerator.accumulate(model);
    backward(2);
    expect_error<UsageError>({"backward: the update has losses with and without a weight"},
                             [&] { accelerator.backward(model(Numbers{1})); });
    auto next = accelerator.accumulate(model);
    expect_error<UsageError>({"backward: the update has losses with and without a weight"},
                             [&] { accelerator.backward(model(Numbers{1})); });
    backward(2);
    auto after = accelerator.accumulate(model);
    accelerator.backward(model(Numbers{1}));  // begins another update
}

}  // namespace
}  // namespace axle
