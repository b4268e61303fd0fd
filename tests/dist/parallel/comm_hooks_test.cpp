#include <cmath>

#include "core/autograd/autograd.h"
#include "dist/parallel/data_parallel.h"
#include "gmock/gmock.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using dist::CommHook;
using dist::DataParallel;
using dist::GradientBucket;
using dist::PowerSgdOptions;
using tests::expect_close;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;

// A model with a matrix and a vector. The caller of step() passes their gradients.
struct Weights : nn::Model<Weights> {
    Weights(std::int64_t rows, std::int64_t columns, DType dtype = f64) {
        matrix = zeros({rows, columns}, {dtype}).set_requires_grad();
        vector = zeros({columns}, {dtype}).set_requires_grad();
    }
    void visit(nn::Visitor& v) override { v("matrix", matrix), v("vector", vector); }
    // Runs a backward pass that produces these gradients and reduces them.
    void step(const Tensor& of_matrix, const Tensor& of_vector) {
        zero_grad();
        (sum(matrix * of_matrix) + sum(vector * of_vector)).backward();
    }
    Tensor matrix, vector;
};

Tensor of_rank(const Tensor& x, const Group& group) { return x[group->rank()]; }

// Covers 9.comm_hook.
TEST(CommHooks, ApproximateTheMeanInHalfPrecision) {
    const Tensor matrices = randn({3, 6, 5}), vectors = randn({3, 5});
    for (const auto& [hook, tolerance] :
         {std::pair(dist::fp16_compress_hook(), 1e-3), std::pair(dist::bf16_compress_hook(), 1e-2)})
        on_ranks(3, [&](const Group& group) {
            Weights model(6, 5, f32);
            DataParallel replicas(model, group, {.hook = hook});
            model.step(of_rank(matrices, group), of_rank(vectors, group));
            expect_close(model.matrix.grad(), matrices.mean({0}), tolerance);
            expect_close(model.vector.grad(), vectors.mean({0}), tolerance);
            EXPECT_GT((model.matrix.grad() - matrices.mean({0})).abs().max().item(), 0);
        });
}

// The sum 40000 + 40000 overflows f16, so the hook must divide first.
// Covers 9.comm_hook.
TEST(CommHooks, DivideBeforeRoundingToHalfPrecision) {
    on_ranks(2, [&](const Group& group) {
        Weights model(2, 2, f32);
        DataParallel replicas(model, group, {.hook = dist::fp16_compress_hook()});
        model.step(full({2, 2}, 40000.0), full({2}, 1.0));
        expect_close(model.matrix.grad(), full({2, 2}, 40000.0), 1e-3);
    });
}

// A hook that returns the sum instead of the mean, and checks its inputs.
class Summing : public CommHook {
  public:
    Pending start(GradientBucket& bucket, dist::ProcessGroup& group) override {
        EXPECT_EQ(bucket.parameters.size(), bucket.gradients.size());
        EXPECT_TRUE(bucket.is_last);
        dist::Work work = group.all_reduce_async(bucket.buffer);
        return {[work]() mutable { work.wait(); }};
    }
};

// Covers 9.comm_hook.
TEST(CommHooks, CanBeUserDefined) {
    on_ranks(2, [&](const Group& group) {
        Weights model(2, 2);
        DataParallel replicas(model, group, {.hook = std::make_shared<Summing>()});
        model.step(ones({2, 2}, {f64}), full({2}, group->rank(), {f64}));
        expect_close(model.matrix.grad(), full({2, 2}, 2.0), 0);
        expect_close(model.vector.grad(), ones({2}), 0);
    });
}

// --- PowerSGD

// Returns `count` matrices [rows, columns] whose matrix rank is `rank`, in f64.
Tensor low_rank(std::int64_t count, std::int64_t rows, std::int64_t columns, std::int64_t rank) {
    return matmul(randn({rows, rank}, {f64}), randn({count, rank, columns}, {f64}));
}

// Covers 9.comm_hook.
TEST(PowerSgd, ReproducesMeansOfLowMatrixRankUpToRounding) {
    manual_seed(1);
    const Tensor matrices = low_rank(3, 20, 16, 2), vectors = randn({3, 16}, {f64});
    for (const bool feedback : {true, false})
        for (const bool warm : {true, false})
            for (const std::int64_t rank : {2, 3})
                on_ranks(3, [&](const Group& group) {
                    Weights model(20, 16);
                    DataParallel replicas(
                        model, group,
                        {.hook = dist::power_sgd_hook({.matrix_approximation_rank = rank,
                                                       .start_powerSGD_iter = 0,
                                                       .use_error_feedback = feedback,
                                                       .warm_start = warm})});
                    for (int step = 0; step < 3; ++step) {
                        model.step(of_rank(matrices, group), of_rank(vectors, group));
                        expect_close(model.vector.grad(), vectors.mean({0}), 1e-12);
                        expect_close(model.matrix.grad(), matrices.mean({0}), 1e-10);
                    }
                });
}

// With error feedback, the sum of the applied gradients stays close to the sum of the exact
// gradients.
// Covers 9.comm_state_option.
TEST(PowerSgd, CompensatesErrorsWithFeedback) {
    manual_seed(2);
    const Tensor matrices = randn({2, 12, 12}, {f64}), vectors = randn({2, 12}, {f64});
    const auto distance = [&](bool feedback, int steps, bool batched) {
        double result = 0;
        on_ranks(2, [&](const Group& group) {
            Weights model(12, 12);
            DataParallel replicas(
                model, group,
                {.hook = dist::power_sgd_hook(
                     {.start_powerSGD_iter = 0, .use_error_feedback = feedback}, batched)});
            Tensor total = zeros({12, 12}, {f64});
            for (int step = 0; step < steps; ++step) {
                model.step(of_rank(matrices, group), of_rank(vectors, group));
                total.add_(model.matrix.grad());
            }
            const Tensor error = total / steps - matrices.mean({0});
            if (group->rank() == 0) result = sqrt(sum(error * error)).item();
        });
        return result;
    };
    for (const bool batched : {false, true}) {
        EXPECT_GT(distance(false, 60, batched), 1);
        EXPECT_LT(distance(true, 60, batched), 0.3 * distance(true, 6, batched));
    }
}

// Covers 9.comm_state_option.
TEST(PowerSgd, CompressesFromStartIterationOnwardWithEqualResultsOnAllRanks) {
    manual_seed(3);
    const Tensor matrices = randn({2, 9, 8}, {f64}), vectors = randn({2, 8}, {f64});
    on_ranks(2, [&](const Group& group) {
        Weights model(9, 8);
        DataParallel replicas(model, group,
                              {.hook = dist::power_sgd_hook({.start_powerSGD_iter = 2})});
        for (int step = 0; step < 4; ++step) {
            model.step(of_rank(matrices, group), of_rank(vectors, group));
            const double error = (model.matrix.grad() - matrices.mean({0})).abs().max().item();
            if (step < 2)
                EXPECT_LT(error, 1e-12);
            else
                EXPECT_GT(error, 1e-3);
            const Tensor of_all_ranks = group->all_gather(model.matrix.grad());
            expect_close(of_all_ranks[0], of_all_ranks[1], 0);
        }
    });
}

// Covers 9.comm_state_option.
TEST(PowerSgd, DoesNotCompressTensorsAtExactlyTheMinimumCompressionRate) {
    manual_seed(4);
    const Tensor matrices = randn({2, 4, 4}, {f64}), vectors = randn({2, 4}, {f64});
    on_ranks(2, [&](const Group& group) {
        Weights model(4, 4);
        // Compression would reduce 16 numbers to 8. It is not used, because 8 is not less than half
        // of 16.
        DataParallel replicas(model, group,
                              {.hook = dist::power_sgd_hook({.start_powerSGD_iter = 0})});
        model.step(of_rank(matrices, group), of_rank(vectors, group));
        expect_close(model.matrix.grad(), matrices.mean({0}), 1e-12);
    });
}

// The gradients of rank 1 are twice the gradients of rank 0, so no terms cancel in the means. With
// unit roundoff u, a mean of two ranks has a relative error of at most 2u: the inputs and the sum
// are rounded. An error of P changes the result twice, in the column and by its normalization. An
// error of Q changes it once, so the error of P Q^T is at most 3 * 2u.
// Covers 9.comm_wrapper.
TEST(PowerSgd, IsAccurateUpToRoundingWithAHalfPrecisionWrapper) {
    manual_seed(5);
    const Tensor matrix = to(low_rank(1, 20, 16, 1)[0], f32), vector = randn({16});
    for (const auto& [wrapper, u] : {std::pair(f16, 0x1p-11), std::pair(bf16, 0x1p-8)})
        for (const int start : {0, 5})
            on_ranks(2, [&, wrapper = wrapper, u = u](const Group& group) {
                Weights model(20, 16, f32);
                DataParallel replicas(model, group,
                                      {.hook = dist::power_sgd_hook(
                                           {.start_powerSGD_iter = start, .wrapper = wrapper})});
                const double times = group->rank() + 1;
                model.step(matrix * times, vector * times);
                expect_close(model.matrix.grad(), matrix * 1.5, (start == 0 ? 6 : 2) * u);
                expect_close(model.vector.grad(), vector * 1.5, 2 * u);
            });
}

// The columns of P cannot all be made orthonormal for a zero gradient, or for a gradient of lower
// rank than the approximation.
TEST(PowerSgd, ReproducesZeroAndRankDeficientGradientsUpToRounding) {
    manual_seed(6);
    const Tensor matrix = randn({10, 1}, {f64}).matmul(randn({1, 10}, {f64}));
    Weights model(10, 10);
    DataParallel replicas(
        model, dist::ProcessGroup::alone(),
        {.hook = dist::power_sgd_hook({.matrix_approximation_rank = 2, .start_powerSGD_iter = 0})});
    // The loop continues after the second step, because this step rebuilds the buckets and discards
    // their state.
    for (int step = 0; step < 3; ++step) {
        model.step(zeros({10, 10}, {f64}), zeros({10}, {f64}));
        expect_close(model.matrix.grad(), zeros({10, 10}), 0);
    }
    for (int step = 0; step < 3; ++step) {
        model.step(matrix, ones({10}, {f64}));
        expect_close(model.matrix.grad(), matrix, 1e-10);
    }
}

TEST(PowerSgd, RejectsAnInvalidState) {
    manual_seed(7);
    Weights model(10, 10);
    DataParallel replicas(model, dist::ProcessGroup::alone(),
                          {.hook = dist::power_sgd_hook({.start_powerSGD_iter = 0})});
    for (int step = 0; step < 3; ++step) model.step(randn({10, 10}, {f64}), randn({10}, {f64}));
    const Tree saved = replicas.state_dict(), state = saved["hook"];
    const auto load = [&](const Tree& hook) {
        Tree from = saved;
        from.set("hook", hook);
        return replicas.load_state_dict(from);
    };
    const auto changed = [&](const char* name, const Tensor& tensor) {
        Tree copy = state;
        copy["buckets"][0].set(name, tensor);
        return copy;
    };
    EXPECT_TRUE(load(state));
    const Tensor error = state["buckets"][0]["error"].tensor();
    EXPECT_GT(error.abs().max().item(), 0);
    for (const double invalid : {std::nan(""), HUGE_VAL})
        expect_error<ValueError>({"power_sgd_hook: 'error' of bucket 0", "infinities or NaN"},
                                 [&] { load(changed("error", full_like(error, invalid))); });
    expect_error<ValueError>({"power_sgd_hook: 'error' of bucket 0", "float32"},
                             [&] { load(changed("error", to(error, f32))); });
    expect_error<ValueError>({"power_sgd_hook: 'q' of bucket 0", "[3]", "[10]"},
                             [&] { load(changed("q", zeros({3}, {f64}))); });
    Tree negative = state;
    negative.set("iteration", -1);
    expect_error<ValueError>({"power_sgd_hook: the saved iteration must be at least 0: -1"},
                             [&] { load(negative); });
    Tree none = state;
    none.set("buckets", Tree::list());
    expect_error<ValueError>({"power_sgd_hook: the state has 0 buckets instead of 1"},
                             [&] { load(none); });
    // The rejected states have not changed the error feedback.
    tests::expect_same_bits(replicas.state_dict()["hook"]["buckets"][0]["error"].tensor(), error);
}

// Two models share one hook, and their steps alternate, as in an Accelerator with two models.
TEST(PowerSgd, HasAStatePerModel) {
    manual_seed(8);
    const Tensor first = randn({2, 12, 12}, {f64}), second = randn({2, 12, 12}, {f64});
    const Tensor vectors = randn({2, 12}, {f64});
    on_ranks(2, [&](const Group& group) {
        const auto hook = [] { return dist::power_sgd_hook({.start_powerSGD_iter = 3}); };
        const auto shared = hook();
        Weights one(12, 12), two(12, 12), expected_one(12, 12), expected_two(12, 12);
        DataParallel of_one(one, group, {.hook = shared}), of_two(two, group, {.hook = shared});
        DataParallel alone(expected_one, group, {.hook = hook()});
        DataParallel also_alone(expected_two, group, {.hook = hook()});
        for (int step = 0; step < 8; ++step) {
            one.step(of_rank(first, group), of_rank(vectors, group));
            two.step(of_rank(second, group), of_rank(vectors, group));
            expected_one.step(of_rank(first, group), of_rank(vectors, group));
            expected_two.step(of_rank(second, group), of_rank(vectors, group));
            tests::expect_same_bits(one.matrix.grad(), expected_one.matrix.grad());
            tests::expect_same_bits(two.matrix.grad(), expected_two.matrix.grad());
        }
        EXPECT_EQ(of_one.state_dict()["hook"]["iteration"].integer(), 8);
    });
}

TEST(PowerSgd, RejectsInvalidOptions) {
    expect_error<ValueError>({"power_sgd_hook: matrix_approximation_rank", "0"},
                             [] { dist::power_sgd_hook({.matrix_approximation_rank = 0}); });
    expect_error<DTypeError>({"power_sgd_hook: wrapper", "float64"},
                             [] { dist::power_sgd_hook({.wrapper = f64}); });
}

}  // namespace
}  // namespace axle
