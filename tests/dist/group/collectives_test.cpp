// Tests the results of collectives of ProcessGroup on one to four ranks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/system/numerics.h"
#include "dist/group/process_group.h"
#include "kernels/error.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using dist::ProcessGroup;
using dist::ReduceOp;
using dist::Work;
using Group = std::shared_ptr<ProcessGroup>;

constexpr DType kComputed[] = {f64, f32, f16, bf16, i64, i32, u8, boolean};
constexpr ReduceOp kReductions[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min,
                                    ReduceOp::product};

enum class Layout { rows, columns };  // `columns` is transposed in memory

struct Form {
    Shape shape;
    Layout layout = Layout::rows;
};
std::vector<Form> forms() {
    return {{{}}, {{7}}, {{0, 3}}, {{5, 4}, Layout::columns}, {{300, 1001}}};
}

// Returns element i of a rank's data: a small integer, so that sums and products are exact in all
// dtypes.
double value(int rank, std::int64_t i, DType dtype) {
    if (dtype == boolean) return static_cast<double>((i + rank) % 3 == 0);
    const std::int64_t v = (i * 7 + rank * 3) % 4;
    return static_cast<double>(dtype == u8 ? v : v - 1);
}

// The number of elements after which value() repeats, for any rank and dtype.
constexpr std::int64_t kPeriod = 12;

// Returns f(0), ..., f(count - 1). f must repeat after kPeriod.
template <class F>
std::vector<double> repeated(std::int64_t count, F&& f) {
    std::vector<double> all(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < std::min(count, kPeriod); ++i)
        all[static_cast<std::size_t>(i)] = f(i);
    for (std::int64_t i = kPeriod; i < count; i *= 2)
        std::copy_n(all.begin(), std::min(i, count - i), all.begin() + i);
    return all;
}

std::vector<double> values(int rank, std::int64_t count, DType dtype) {
    return repeated(count, [&](std::int64_t i) { return value(rank, i, dtype); });
}

Tensor laid_out(const Tensor& x, Layout layout) {
    if (layout == Layout::rows) return x;
    const Tensor y = x.transpose(0, 1).clone().transpose(0, 1);
    return y;
}

Tensor input(int rank, const Form& form, DType dtype) {
    const std::vector<double> all = values(rank, numel(form.shape), dtype);
    return laid_out(tensor(all, form.shape, {.dtype = dtype}), form.layout);
}

bool has(DType dtype, ReduceOp op) {
    if (dtype == boolean) return op == ReduceOp::max || op == ReduceOp::min;
    return op != ReduceOp::mean || is_floating(dtype);
}

std::vector<double> reduced(int size, std::int64_t count, DType dtype, ReduceOp op) {
    return repeated(count, [&](std::int64_t i) {
        double y = value(0, i, dtype);
        for (int rank = 1; rank < size; ++rank) {
            const double x = value(rank, i, dtype);
            if (op == ReduceOp::sum || op == ReduceOp::mean) y += x;
            if (op == ReduceOp::max) y = std::max(y, x);
            if (op == ReduceOp::min) y = std::min(y, x);
            if (op == ReduceOp::product) y *= x;
        }
        return op == ReduceOp::mean ? y / size : y;
    });
}

void expect_near(const Tensor& x, const std::vector<double>& expected) {
    const double tolerance = x.dtype() == f64 ? 1e-15 : x.dtype() == f32 ? 1e-6 : 1e-2;
    const std::vector<double> got = x.to_vector();
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        if (std::abs(got[i] - expected[i]) > tolerance)
            FAIL() << "element " << i << ": " << got[i] << " instead of " << expected[i];
}

Tensor values_tensor(int rank) { return input(rank, {{rank, 2}}, bf16); }

void expect_same(const Tree& a, const Tree& b) {
    EXPECT_EQ(a["rank"].integer(), b["rank"].integer());
    EXPECT_EQ(a["name"].string(), b["name"].string());
    EXPECT_EQ(a["x"].tensor().dtype(), b["x"].tensor().dtype());
    EXPECT_EQ(a["x"].tensor().shape(), b["x"].tensor().shape());
    EXPECT_EQ(a["x"].tensor().to_vector(), b["x"].tensor().to_vector());
}

class Collectives : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4));

TEST_P(Collectives, AllReduceEveryDTypeShapeAndReduction) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        for (const DType dtype : kComputed)
            for (const Form& form : forms())
                for (const ReduceOp op : kReductions) {
                    if (!has(dtype, op)) continue;
                    const Tensor x = input(group->rank(), form, dtype);
                    group->all_reduce(x, op);
                    expect_near(x, reduced(size, numel(form.shape), dtype, op));
                }
    });
}

TEST_P(Collectives, ReduceToAnyRoot) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        for (int root = 0; root < size; ++root)
            for (const Form& form : forms()) {
                const Tensor x = input(group->rank(), form, bf16);
                group->reduce(x, root, ReduceOp::sum);
                if (group->rank() == root)
                    expect_near(x, reduced(size, numel(form.shape), bf16, ReduceOp::sum));
            }
    });
}

TEST_P(Collectives, BroadcastValuesOfTheRootToAllRanks) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        for (int root = 0; root < size; ++root)
            for (const DType dtype : kComputed)
                for (const Form& form : forms()) {
                    const Tensor x = input(group->rank(), form, dtype);
                    group->broadcast(x, root);
                    EXPECT_EQ(x.to_vector(), values(root, x.numel(), dtype));
                }
    });
}

TEST_P(Collectives, GatherTensorsOfAllRanks) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        for (const DType dtype : kComputed)
            for (const Form& form : forms()) {
                const Tensor out = group->all_gather(input(group->rank(), form, dtype));
                ASSERT_EQ(out.dim(), form.shape.size() + 1);
                ASSERT_EQ(out.size(0), size);
                for (int rank = 0; rank < size; ++rank)
                    EXPECT_EQ(out[rank].to_vector(), values(rank, numel(form.shape), dtype));
            }
    });
}

TEST_P(Collectives, GatherIntoAStridedTensor) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        const Tensor out = laid_out(zeros({size, 6}), Layout::columns);
        Work work = group->all_gather_into_async(out, input(group->rank(), {{6}}, f32));
        work.wait();
        for (int rank = 0; rank < size; ++rank)
            EXPECT_EQ(out[rank].to_vector(), values(rank, 6, f32));
    });
}

TEST_P(Collectives, GatherDifferentNumbersOfRows) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        const auto rows = [](int rank) { return rank == 1 ? 0 : 2 * rank + 1; };
        const std::vector<Tensor> parts =
            group->all_gather_uneven(input(group->rank(), {{rows(group->rank()), 3}}, i64));
        ASSERT_EQ(parts.size(), static_cast<std::size_t>(size));
        for (int rank = 0; rank < size; ++rank) {
            const Tensor& part = parts[static_cast<std::size_t>(rank)];
            EXPECT_EQ(part.shape(), Shape({rows(rank), 3}));
            EXPECT_EQ(part.to_vector(), values(rank, rows(rank) * 3, i64));
        }
    });
}

TEST_P(Collectives, ScatterReducedPartsToRanks) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        for (const DType dtype : kComputed)
            for (const ReduceOp op : kReductions)
                for (const Form& form : {Form{{size}}, Form{{size, 3}, Layout::columns},
                                         Form{{size, 0}}, Form{{size, 200001}}}) {
                    if (!has(dtype, op)) continue;
                    const Tensor out = group->reduce_scatter(input(group->rank(), form, dtype), op);
                    const std::vector<double> all = reduced(size, numel(form.shape), dtype, op);
                    const auto begin = all.begin() + out.numel() * group->rank();
                    expect_near(out, {begin, begin + out.numel()});
                }
    });
}

TEST_P(Collectives, ExchangeRowsBetweenAllRanks) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        for (const DType dtype : kComputed)
            for (const Form& form : {Form{{size}}, Form{{size, 3}, Layout::columns}}) {
                const Tensor out = group->all_to_all(input(group->rank(), form, dtype));
                for (int rank = 0; rank < size; ++rank)
                    EXPECT_EQ(out[rank].to_vector(),
                              input(rank, form, dtype)[group->rank()].to_vector());
            }
    });
}

TEST_P(Collectives, ExchangeDifferentNumbersOfRows) {
    const int size = GetParam();
    const auto rows = [](int from, int to) { return (from + 2 * to) % 3; };
    tests::on_ranks(size, [&](const Group& group) {
        std::vector<Tensor> sends;
        sends.reserve(static_cast<std::size_t>(size));
        for (int to = 0; to < size; ++to)
            sends.push_back(full({rows(group->rank(), to), 2}, 10 * group->rank() + to, {f32}));
        const std::vector<Tensor> parts = group->all_to_all_uneven(sends);
        for (int from = 0; from < size; ++from) {
            const Tensor expected =
                full({rows(from, group->rank()), 2}, 10 * from + group->rank(), {f32});
            const Tensor& part = parts[static_cast<std::size_t>(from)];
            EXPECT_EQ(part.shape(), expected.shape());
            EXPECT_EQ(part.to_vector(), expected.to_vector());
        }
    });
}

TEST_P(Collectives, RestoreGatheredTensorsWithScatter) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        for (int root = 0; root < size; ++root)
            for (const DType dtype : kComputed)
                for (const Form& form : forms()) {
                    const Tensor x = input(group->rank(), form, dtype);
                    const Tensor all = group->gather(x, root);
                    EXPECT_EQ(all.defined(), group->rank() == root);
                    const Tensor back = group->scatter(all, root);
                    EXPECT_EQ(back.dtype(), dtype);
                    EXPECT_EQ(back.shape(), x.shape());
                    EXPECT_EQ(back.to_vector(), x.to_vector());
                }
    });
}

TEST_P(Collectives, GatherTensorsOfStorageDTypes) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        for (const DType dtype : {DType::i8, DType::f8_e4m3, DType::u16, DType::c64}) {
            const Tensor x = Tensor::empty({3}, {.dtype = dtype});
            const auto bytes = static_cast<std::size_t>(3 * size_of(dtype));
            std::memset(x.raw_data(), 16 + group->rank(), bytes);
            const Tensor all = group->all_gather(x);
            const auto* const got = static_cast<const unsigned char*>(all.raw_data());
            for (std::size_t i = 0; i < bytes * static_cast<std::size_t>(size); ++i)
                EXPECT_EQ(got[i], 16 + i / bytes);
        }
    });
}

TEST_P(Collectives, AllReduceSeveralTensorsInOneCall) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        std::vector<Tensor> xs;
        for (const Form& form : forms()) xs.push_back(input(group->rank(), form, f32));
        group->all_reduce(xs, ReduceOp::mean);
        for (const Tensor& x : xs) expect_near(x, reduced(size, x.numel(), f32, ReduceOp::mean));
        group->all_reduce(std::vector<Tensor>());
    });
}

TEST_P(Collectives, CompleteIfTheyAreWaitedForInReverseOrder) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        std::vector<Tensor> xs;
        std::vector<Work> works;
        for (int i = 0; i < 30; ++i) {
            xs.push_back(input(group->rank(), {{i * 1000 + 1}}, f32));
            works.push_back(i % 3 == 0 ? group->broadcast_async(xs.back(), i % size)
                                       : group->all_reduce_async(xs.back()));
        }
        for (int i = 29; i >= 0; --i) {
            works[static_cast<std::size_t>(i)].wait();
            EXPECT_TRUE(works[static_cast<std::size_t>(i)].is_completed());
            expect_near(xs[static_cast<std::size_t>(i)],
                        i % 3 == 0 ? values(i % size, i * 1000 + 1, f32)
                                   : reduced(size, i * 1000 + 1, f32, ReduceOp::sum));
        }
    });
}

TEST_P(Collectives, AddInputsInPairsInDeterministicMode) {
    const int size = GetParam();
    use_deterministic_algorithms(true);
    tests::on_ranks(size, [&](const Group& group) {
        for (const DType dtype : {f32, f64, bf16, f16})
            for (const std::int64_t count : {1001, 1000003}) {
                std::vector<double> own;
                for (std::int64_t i = 0; i < count; ++i)
                    own.push_back(std::sin(static_cast<double>(i * size + group->rank())) * 1000);
                const Tensor x = tensor(own, {count}, {.dtype = dtype});
                const Tensor all = group->all_gather(x);
                const Tensor wide = is_half(dtype) ? all.to(f32) : all;
                Tensor sum = wide[0];
                if (size > 1) sum = sum + wide[1];
                if (size == 3) sum = sum + wide[2];
                if (size == 4) sum = sum + (wide[2] + wide[3]);
                group->all_reduce(x);
                EXPECT_EQ(x.to_vector(), sum.to(dtype).to_vector());
            }
    });
    use_deterministic_algorithms(false);
}

TEST_P(Collectives, GatherBroadcastAndScatterObjects) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        const auto object = [](int rank) {
            Tree tree{{"rank", rank},
                      {"name", std::string(static_cast<std::size_t>(rank) * 70000, 'x')}};
            tree.set("x", values_tensor(rank));
            return tree;
        };
        const std::vector<Tree> all = group->all_gather_object(object(group->rank()));
        ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
        for (int rank = 0; rank < size; ++rank)
            expect_same(all[static_cast<std::size_t>(rank)], object(rank));
        for (int root = 0; root < size; ++root) {
            expect_same(group->broadcast_object(object(group->rank()), root), object(root));
            const std::vector<Tree> gathered = group->gather_object(object(group->rank()), root);
            EXPECT_EQ(gathered.size(), group->rank() == root ? static_cast<std::size_t>(size) : 0);
            expect_same(group->scatter_object(gathered, root), object(group->rank()));
        }
    });
}

TEST_P(Collectives, RunInSubgroupsAtTheSameTime) {
    const int size = GetParam();
    tests::on_ranks(size, [&](const Group& group) {
        const Group half = group->split(group->rank() % 2);
        std::vector<int> expected;
        for (int rank = group->rank() % 2; rank < size; rank += 2) expected.push_back(rank);
        EXPECT_EQ(half->global_ranks(), expected);
        EXPECT_EQ(half->size(), static_cast<int>(expected.size()));
        EXPECT_EQ(half->rank(), group->rank() / 2);
        for (int i = 0; i < 20; ++i) {
            const Tensor x = full({100000}, 1 + group->rank() % 2, {f32}), y = ones({10});
            Work whole = group->all_reduce_async(y);
            half->all_reduce(x);
            whole.wait();
            EXPECT_EQ(x.max().item(), half->size() * (1 + group->rank() % 2));
            EXPECT_EQ(y.min().item(), size);
        }
        const Group last = group->new_group({size - 1});
        EXPECT_EQ(last != nullptr, group->rank() == size - 1);
        if (last != nullptr) {
            EXPECT_EQ(last->rank(), 0);
            EXPECT_EQ(last->global_ranks(), std::vector<int>{size - 1});
        }
        group->barrier();
    });
}

}  // namespace
}  // namespace axle
