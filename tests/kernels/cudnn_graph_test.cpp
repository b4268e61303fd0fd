// The graphs that are given to cuDNN, checked by cuDNN itself on a machine without a GPU: it reads
// shapes, types and the pattern of operations, and computes nothing.
#if AXLE_CUDA

#include <gtest/gtest.h>

#include "kernels/cuda/cudnn_attention.h"

namespace axle::tests {
namespace {

using namespace kernels;

enum class Layout { heads_outside, heads_inside, interleaved };

// [B, H, T, D], in memory [B, H, T, D], [B, T, H, D] or [B, T, 3, H, D].
View heads(std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t depth,
           DType dtype, Layout layout) {
    View x;
    x.dtype = dtype, x.ndim = 4;
    x.shape[0] = batch, x.shape[1] = heads, x.shape[2] = length, x.shape[3] = depth;
    const std::int64_t parts = layout == Layout::interleaved ? 3 : 1;
    const bool outside = layout == Layout::heads_outside;
    x.stride[0] = parts * heads * length * depth;
    x.stride[1] = outside ? length * depth : depth;
    x.stride[2] = outside ? depth : parts * heads * depth;
    x.stride[3] = 1;
    return x;
}

struct Shape {
    std::int64_t batch, heads, groups, queries, keys, depth;
    bool causal;
    DType dtype;
    Layout layout;
};

const Shape kShapes[] = {
    {64, 12, 12, 1024, 1024, 64, true, bf16, Layout::interleaved},
    {64, 12, 12, 1024, 1024, 64, false, f16, Layout::heads_outside},
    {2, 12, 12, 77, 77, 64, true, bf16, Layout::heads_inside},
    {1, 8, 2, 256, 256, 128, true, bf16, Layout::heads_outside},
    {1, 8, 1, 256, 512, 128, false, f16, Layout::heads_inside},
    {2, 3, 3, 150, 140, 32, false, bf16, Layout::heads_inside},
    {2, 3, 3, 128, 128, 80, true, bf16, Layout::heads_inside},
    {1, 1, 1, 1000, 1000, 16, true, f16, Layout::interleaved},
    {1, 2, 2, 128, 128, 256, true, bf16, Layout::interleaved},
};

class CudnnGraph : public testing::TestWithParam<Shape> {
  protected:
    void SetUp() override {
        if (cudnn::functions() == nullptr) GTEST_SKIP() << "there is no cuDNN";
        const Shape& s = GetParam();
        const Layout result = s.layout == Layout::heads_outside ? s.layout : Layout::heads_inside;
        q = heads(s.batch, s.heads, s.queries, s.depth, s.dtype, s.layout);
        k = heads(s.batch, s.groups, s.keys, s.depth, s.dtype, s.layout);
        out = heads(s.batch, s.heads, s.queries, s.depth, s.dtype, result);
        lse.dtype = f32, lse.ndim = 3;
        lse.shape[0] = s.batch, lse.shape[1] = s.heads, lse.shape[2] = s.queries;
        lse.stride[0] = s.heads * s.queries, lse.stride[1] = s.queries, lse.stride[2] = 1;
    }
    // v is like k, gradients are like what they are gradients of.
    View q, k, out, lse;
};

TEST_P(CudnnGraph, AcceptsAttention) {
    const cudnn::Graph graph = cudnn::attention_graph(q, k, k, GetParam().causal, out, lse);
    EXPECT_NO_THROW(graph.finish(nullptr));
}

TEST_P(CudnnGraph, AcceptsAttentionBackward) {
    for (const bool deterministic : {false, true}) {
        const cudnn::Graph graph = cudnn::attention_backward_graph(
            out, q, k, k, GetParam().causal, out, lse, q, k, k, deterministic);
        EXPECT_NO_THROW(graph.finish(nullptr)) << "deterministic: " << deterministic;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudnnGraph, testing::ValuesIn(kShapes));

TEST(CudnnGraphErrors, SizesThatDoNotFitAreRefused) {
    if (cudnn::functions() == nullptr) GTEST_SKIP() << "there is no cuDNN";
    const auto product = [] {
        cudnn::Graph graph;
        const auto a = graph.tensor(CUDNN_DATA_HALF, {1, 8, 16}, {128, 16, 1});
        const auto b = graph.tensor(CUDNN_DATA_HALF, {1, 24, 8}, {192, 8, 1});
        const auto y = graph.tensor(CUDNN_DATA_HALF, {1, 8, 8}, {64, 8, 1});
        graph.matmul(a, b, y);
        graph.finish(nullptr);
    };
    EXPECT_THROW(product(), cudnn::GraphRefused);
}

TEST(CudnnKey, TellsApartWhatGraphsDependOn) {
    alignas(16) float memory[16] = {};
    View x;
    x.data = memory, x.ndim = 2, x.shape[0] = 2, x.shape[1] = 4, x.stride[0] = 4, x.stride[1] = 1;
    const auto key_of = [](const View& view) {
        cudnn::Key key;
        cudnn::append(key, view);
        return key;
    };
    View same = x;
    same.data = memory + 4;
    EXPECT_EQ(key_of(x), key_of(same));
    View unaligned = x, padded = x, other = x;
    unaligned.data = memory + 1, padded.stride[0] = 8, other.dtype = DType::i32;
    EXPECT_NE(key_of(x), key_of(unaligned));
    EXPECT_NE(key_of(x), key_of(padded));
    EXPECT_NE(key_of(x), key_of(other));
}

}  // namespace
}  // namespace axle::tests

#endif  // AXLE_CUDA
