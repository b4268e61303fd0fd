#include "dist/ops/collective_ops.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "dist/group/process_group.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using dist::all_gather_along;
using dist::all_to_all_along;
using dist::copy_to_group;
using dist::GradientKind;
using dist::reduce_from_group;
using dist::reduce_scatter_along;
using dist::split_along;
using tests::expect_close;
using tests::expect_error;
using tests::on_ranks;
using tests::outcomes;
using Group = std::shared_ptr<dist::ProcessGroup>;

Tensor values(const Shape& shape, std::size_t seed) {
    Tensor x = Tensor::empty(shape, {.dtype = f64});
    auto* const data = x.data<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i)
        data[i] = std::sin((0.7 + static_cast<double>(seed)) * static_cast<double>(i + 1));
    return x.set_requires_grad();
}

Tensor cubes(const Tensor& x) { return sum(mul(mul(x, x), x)); }

// A loss of a replicated tensor x and one local tensor of each rank.
using DividedLoss = std::function<Tensor(const Tensor& x, const Tensor& local, const Group& group)>;
using WholeLoss = std::function<Tensor(const Tensor& x, const std::vector<Tensor>& locals)>;

// Compares the loss, its gradients and its second derivatives with one process.
void expect_same_derivatives(int size, const Shape& shape, const Shape& local_shape,
                             const DividedLoss& divided, const WholeLoss& whole) {
    on_ranks(size, [&](const Group& group) {
        const Tensor x = values(shape, 1), expected_x = values(shape, 1);
        const auto r = static_cast<std::size_t>(group->rank());
        std::vector<Tensor> locals;
        for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i)
            locals.push_back(values(local_shape, 2 + i));
        const Tensor local = values(local_shape, 2 + r);

        const Tensor loss = divided(x, local, group), expected = whole(expected_x, locals);
        expect_close(loss, expected, 1e-12);
        const std::vector<Tensor> g =
            autograd::grad({loss}, {x, local}, {}, {.create_graph = true});
        std::vector<Tensor> inputs = {expected_x};
        inputs.insert(inputs.end(), locals.begin(), locals.end());
        const std::vector<Tensor> expected_g =
            autograd::grad({expected}, inputs, {}, {.create_graph = true});
        expect_close(g[0], expected_g[0], 1e-12);
        expect_close(g[1], expected_g[1 + r], 1e-12);

        // The gradient of x is replicated, and each rank has the gradient of its local tensor.
        add(cubes(g[0]), reduce_from_group(cubes(g[1]), group)).backward();
        Tensor total = cubes(expected_g[0]);
        for (std::size_t i = 1; i < expected_g.size(); ++i)
            total = add(total, cubes(expected_g[i]));
        total.backward();
        expect_close(x.grad(), expected_x.grad(), 1e-11);
        expect_close(local.grad(), locals[r].grad(), 1e-11);
    });
}

TEST(ReduceFromGroup, HasTheDerivativesOfOneProcessAfterCopyToGroup) {
    expect_same_derivatives(
        3, {4}, {4},
        [](const Tensor& x, const Tensor& local, const Group& group) {
            return cubes(reduce_from_group(mul(copy_to_group(x, group), tanh(local)), group));
        },
        [](const Tensor& x, const std::vector<Tensor>& locals) {
            Tensor y = mul(x, tanh(locals[0]));
            for (std::size_t i = 1; i < locals.size(); ++i) y = add(y, mul(x, tanh(locals[i])));
            return cubes(y);
        });
}

TEST(AllGatherAlong, HasTheDerivativesOfOneProcessIfRanksUseTheResultEqually) {
    expect_same_derivatives(
        3, {2, 6, 2}, {2, 2, 2},
        [](const Tensor& x, const Tensor& local, const Group& group) {
            return cubes(mul(x, tanh(all_gather_along(local, 1, group, GradientKind::same))));
        },
        [](const Tensor& x, const std::vector<Tensor>& locals) {
            return cubes(mul(x, tanh(cat(locals, 1))));
        });
}

TEST(AllGatherAlong, HasTheDerivativesOfOneProcessIfRanksUseTheResultDifferently) {
    expect_same_derivatives(
        2, {2, 6}, {2, 3},
        [](const Tensor& x, const Tensor& local, const Group& group) {
            const Tensor all = all_gather_along(local, -1, group, GradientKind::partial);
            const Tensor own = mul(copy_to_group(x, group), 1 + group->rank());
            return reduce_from_group(cubes(mul(own, tanh(all))), group);
        },
        [](const Tensor& x, const std::vector<Tensor>& locals) {
            const Tensor y = mul(x, tanh(cat(locals, -1)));
            return add(cubes(y), cubes(mul(y, 2)));
        });
}

TEST(SplitAlong, HasTheDerivativesOfOneProcess) {
    expect_same_derivatives(
        3, {2, 6}, {2, 2},
        [](const Tensor& x, const Tensor& local, const Group& group) {
            return reduce_from_group(cubes(mul(tanh(split_along(x, 1, group)), local)), group);
        },
        [](const Tensor& x, const std::vector<Tensor>& locals) {
            return cubes(mul(tanh(x), cat(locals, 1)));
        });
}

TEST(ReduceScatterAlong, HasTheDerivativesOfOneProcess) {
    expect_same_derivatives(
        2, {2, 4}, {2, 4},
        [](const Tensor& x, const Tensor& local, const Group& group) {
            const Tensor y = mul(copy_to_group(x, group), tanh(local));
            return reduce_from_group(cubes(reduce_scatter_along(y, 1, group)), group);
        },
        [](const Tensor& x, const std::vector<Tensor>& locals) {
            return cubes(mul(x, add(tanh(locals[0]), tanh(locals[1]))));
        });
}

TEST(AllToAllAlong, HasTheDerivativesOfOneProcess) {
    expect_same_derivatives(
        2, {1, 2, 4, 3}, {1, 4, 2, 3},
        [](const Tensor& x, const Tensor& local, const Group& group) {
            // Each rank has its part of dimension 2, and gets its part of dimension 1.
            const Tensor y = all_to_all_along(tanh(local), 1, 2, group);
            const Tensor own = mul(copy_to_group(x, group), 1 + group->rank());
            return reduce_from_group(cubes(mul(y, own)), group);
        },
        [](const Tensor& x, const std::vector<Tensor>& locals) {
            const Tensor y = tanh(cat(locals, 2));
            return add(cubes(mul(narrow(y, 1, 0, 2), x)),
                       cubes(mul(mul(narrow(y, 1, 2, 2), x), 2)));
        });
}

TEST(AllToAllAlong, ExchangesPartsOfOneDimension) {
    on_ranks(2, [](const Group& group) {
        const double r = group->rank();
        const Tensor y = all_to_all_along(tensor({r, 10 + r}), 0, 0, group);
        tests::expect_same_bits(y, tensor({10 * r, 10 * r + 1}));
    });
}

TEST(CopyToGroup, SumsGradientsOfSeveralTensorsInOneAllReduce) {
    on_ranks(2, [](const Group& group) {
        const Tensor a = values({2, 3}, 1), b = values({4}, 2), frozen = ones({2}), none;
        const double r = group->rank() + 1;
        const auto loss = [&](const std::vector<Tensor>& at) {
            return add(cubes(mul(at[0], r)), cubes(mul(at[1], 2 * r)));
        };
        dist::reset_collective_counts();
        const std::vector<Tensor> copies = copy_to_group({a, frozen, b, none}, group);
        EXPECT_FALSE(copies[3].defined());
        EXPECT_TRUE(copies[1].is_same(frozen));
        const Tensor whole = loss({copies[0], copies[2]});
        const std::vector<Tensor> g = autograd::grad({whole}, {a, b}, {}, {.retain_graph = true});
        EXPECT_EQ(dist::collective_counts(),
                  (dist::CollectiveCounts{.all_reduces = 1, .bytes = 10 * 8}));
        // The sum of r^3 over the ranks is 9.
        expect_close(g[0], mul(mul(a, a), 27), 1e-12);
        expect_close(g[1], mul(mul(b, b), 27 * 8), 1e-12);
        const std::vector<Tensor> again =
            autograd::grad({whole}, {a, b}, {}, {.create_graph = true});
        add(again[0].sum(), again[1].sum()).backward();
        expect_close(a.grad(), mul(a, 54), 1e-12);
        expect_close(b.grad(), mul(b, 54 * 8), 1e-12);
        // Only one of the tensors is used.
        const std::vector<Tensor> used = copy_to_group({a, b}, group);
        expect_close(autograd::grad({cubes(used[1])}, {b})[0], mul(mul(b, b), 6), 1e-12);
    });
}

TEST(DifferentiableCollectives, ReturnTheirOperandInAGroupOfOneProcess) {
    const Group group = dist::ProcessGroup::alone();
    const Tensor x = values({3}, 1);
    for (const Tensor& y :
         {copy_to_group(x, group), reduce_from_group(x, group),
          all_gather_along(x, 0, group, GradientKind::partial), split_along(x, 0, group),
          reduce_scatter_along(x, 0, group), all_to_all_along(x, 0, 0, group)})
        EXPECT_TRUE(y.is_same(x));
}

TEST(DifferentiableCollectives, RejectUnequalPartsAndUnknownDimensionsOnEveryRank) {
    on_ranks(2, [](const Group& group) {
        const Tensor x = ones({2, 3});
        expect_error<ShapeError>(
            {"split_along: ", "dimension 1 is not a multiple of the 2 ranks", "x [2, 3]"},
            [&] { split_along(x, 1, group); });
        expect_error<ShapeError>({"reduce_scatter_along: ", "x [2, 3]"},
                                 [&] { reduce_scatter_along(x, -1, group); });
        expect_error<ShapeError>({"all_to_all_along: ", "x [2, 3]"},
                                 [&] { all_to_all_along(x, 1, 0, group); });
        expect_error<ShapeError>({"split_along: a 0-d tensor has no dimension 0"},
                                 [&] { split_along(ones({}), 0, group); });
        expect_error<IndexError>({"all_gather_along: "},
                                 [&] { all_gather_along(x, 2, group, GradientKind::same); });
        expect_error<IndexError>({"all_to_all_along: "}, [&] { all_to_all_along(x, 0, 5, group); });
    });
}

TEST(AllGatherAlong, ThrowsCommErrorOnEveryRankIfShapesDiffer) {
    const auto errors = outcomes(2, [](const Group& group) {
        all_gather_along(ones({2 + group->rank()}), 0, group, GradientKind::same);
    });
    for (const std::exception_ptr& error : errors) {
        ASSERT_NE(error, nullptr);
        EXPECT_THROW(std::rethrow_exception(error), CommError);
        EXPECT_NE(tests::text_of(error).find("all_gather"), std::string::npos);
    }
}

}  // namespace
}  // namespace axle
