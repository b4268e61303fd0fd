#include "dist/group/reduce.h"

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "kernels/exec.h"

namespace axle {
namespace {

using dist::ReduceOp;

template <class T>
std::vector<T> reduced(const std::vector<std::vector<T>>& runs, ReduceOp op) {
    kernels::Cpu cpu;
    std::vector<const void*> from;
    for (const std::vector<T>& run : runs) from.push_back(run.data());
    std::vector<T> out(runs.front().size());
    dist::reduce(cpu, out.data(), from, static_cast<std::int64_t>(out.size()), dtype_of<T>, op);
    return out;
}

std::vector<std::vector<float>> columns(const std::vector<float>& values) {
    std::vector<std::vector<float>> runs;
    for (const float value : values) runs.emplace_back(40000, value);
    return runs;
}

TEST(ReduceKernel, AddsInputsInPairs) {
    // In f32, 2^24 + 1 == 2^24 but 2^24 + 2 is exact, so the result shows the order of additions.
    const float big = 16777216;
    EXPECT_EQ(reduced<float>(columns({big, 1, 1}), ReduceOp::sum).back(), big);
    EXPECT_EQ(reduced<float>(columns({1, 1, big}), ReduceOp::sum).back(), big + 2);
    EXPECT_EQ(reduced<float>(columns({big, 0, 1, 1}), ReduceOp::sum).back(), big + 2);
    EXPECT_EQ(reduced<float>(columns({big, 0, 0, 0, 1, 1}), ReduceOp::sum).back(), big + 2);
    EXPECT_EQ(reduced<float>(columns({0, 0, 0, 0, 1, 1, big}), ReduceOp::sum).back(), big + 2);
    EXPECT_EQ(reduced<float>(columns({0, 1, 0, 0, big}), ReduceOp::sum).back(), big);
}

TEST(ReduceKernel, RoundsHalfPrecisionOnce) {
    const BFloat16 big(256), one(1);
    const std::vector<std::vector<BFloat16>> runs = {{big}, {one}, {one}, {one}};
    EXPECT_EQ(static_cast<float>(reduced<BFloat16>(runs, ReduceOp::sum)[0]),
              static_cast<float>(BFloat16(259.0F)));
    const Half most(65504.0F);
    EXPECT_EQ(static_cast<float>(reduced<Half>({{most}, {most}, {most}}, ReduceOp::mean)[0]),
              65504.0F);
}

TEST(ReduceKernel, PropagatesNan) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
        EXPECT_NE(reduced<float>({{nan}, {1}}, op)[0], reduced<float>({{nan}, {1}}, op)[0]);
        EXPECT_NE(reduced<float>({{1}, {nan}}, op)[0], reduced<float>({{1}, {nan}}, op)[0]);
    }
}

TEST(ReduceKernel, CanOverwriteAnInput) {
    kernels::Cpu cpu;
    for (int count = 1; count <= 9; ++count) {
        for (int own = 0; own < count; ++own) {
            std::vector<std::vector<std::int64_t>> runs;
            for (int i = 0; i < count; ++i) runs.emplace_back(20000, std::int64_t{1} << i);
            std::vector<const void*> from;
            for (const auto& run : runs) from.push_back(run.data());
            std::vector<std::int64_t>& out = runs[static_cast<std::size_t>(own)];
            dist::reduce(cpu, out.data(), from, 20000, i64, ReduceOp::sum);
            EXPECT_EQ(out, std::vector<std::int64_t>(20000, (std::int64_t{1} << count) - 1));
        }
    }
}

}  // namespace
}  // namespace axle
