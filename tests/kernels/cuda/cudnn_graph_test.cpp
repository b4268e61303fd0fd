// Tests the attention graphs with cuDNN on a machine without a GPU. cuDNN validates shapes, types
// and the pattern of operations, and computes nothing. The driver compiles cuDNN's attention
// engines, so plans are created only if a driver is installed.
#if AXLE_CUDA

#include <initializer_list>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "kernels/cuda/attention/cudnn_attention_graph.h"
#include "kernels/cuda/attention/cudnn_scores.h"
#include "tests/kernels/cuda/described_gpu.h"

namespace axle::kernels::cudnn {
namespace {

enum class Layout { heads_outside, heads_inside, interleaved };

// Returns a view of shape [B, H, T, D], stored as [B, H, T, D], [B, T, H, D] or [B, T, 3, H, D].
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

// The dimensions of the attention scores along which a mask is broadcast.
enum class Repeats { no_mask, nothing, heads, batch_and_heads, queries_and_heads };

struct Call {
    std::int64_t batch, heads, groups, queries, keys, depth;
    bool causal = false;
    DType dtype = bf16;
    Layout layout = Layout::heads_inside;
    Repeats repeats = Repeats::no_mask;
    DType mask = boolean;
    double dropout_p = 0;
};

std::ostream& operator<<(std::ostream& out, const Call& c) {
    return out << "B " << c.batch << ", H " << c.heads << ", G " << c.groups << ", T " << c.queries
               << " x " << c.keys << ", D " << c.depth << ", causal " << c.causal << ", " << c.dtype
               << ", mask " << static_cast<int>(c.repeats) << " of " << c.mask << ", dropout "
               << c.dropout_p;
}

View mask_of(const Call& c) {
    View x = heads(c.batch, c.heads, c.queries, c.keys, c.mask, Layout::heads_outside);
    const bool queries = c.repeats == Repeats::queries_and_heads;
    if (c.repeats == Repeats::batch_and_heads) x.stride[0] = 0;
    if (c.repeats != Repeats::nothing) x.stride[1] = 0;
    if (queries) x.stride[2] = 0;
    return x;
}

AttentionTensors tensors(const Call& c) {
    const Layout result = c.layout == Layout::heads_outside ? c.layout : Layout::heads_inside;
    AttentionTensors at;
    at.q = heads(c.batch, c.heads, c.queries, c.depth, c.dtype, c.layout);
    at.k = at.v = heads(c.batch, c.groups, c.keys, c.depth, c.dtype, c.layout);
    at.out = heads(c.batch, c.heads, c.queries, c.depth, c.dtype, result);
    View lse;
    lse.dtype = f32, lse.ndim = 3;
    lse.shape[0] = c.batch, lse.shape[1] = c.heads, lse.shape[2] = c.queries;
    lse.stride[0] = c.heads * c.queries, lse.stride[1] = c.queries, lse.stride[2] = 1;
    at.lse = lse;
    if (c.repeats != Repeats::no_mask) at.bias = bias_like(mask_of(c), c.dtype, nullptr);
    at.causal = c.causal, at.dropout_p = c.dropout_p;
    return at;
}

Graph forward(const Call& c) { return attention_graph(tensors(c)); }
Graph backward(const Call& c, bool deterministic) {
    const AttentionTensors at = tensors(c);
    return attention_backward_graph(at, {at.out, at.q, at.k, at.v, deterministic});
}

const Call kShapes[] = {
    {64, 12, 12, 1024, 1024, 64, true, bf16, Layout::interleaved},
    {64, 12, 12, 1024, 1024, 64, false, f16, Layout::heads_outside},
    {2, 12, 12, 77, 77, 64, true},
    {1, 8, 2, 256, 256, 128, true, bf16, Layout::heads_outside},
    {1, 8, 1, 256, 512, 128, false, f16},
    {2, 3, 3, 150, 140, 32},
    {2, 3, 3, 128, 128, 80, true},
    {1, 1, 1, 1000, 1000, 16, true, f16, Layout::interleaved},
    {1, 2, 2, 128, 128, 256, true, bf16, Layout::interleaved},
};

// Returns kShapes and all combinations of head sizes, dtypes, kinds of masks, grouped queries,
// dropout and causality.
std::vector<Call> all_calls() {
    std::vector<Call> calls(std::begin(kShapes), std::end(kShapes));
    constexpr Repeats kRepeats[] = {Repeats::no_mask, Repeats::nothing, Repeats::heads,
                                    Repeats::batch_and_heads, Repeats::queries_and_heads};
    for (const std::int64_t depth : {16, 32, 64, 96, 128, 192, 256})
        for (const DType dtype : {f16, bf16})
            for (const Repeats repeats : kRepeats)
                for (const DType mask : {boolean, f32})
                    for (const std::int64_t groups : {4, 2})
                        for (const bool causal : {false, true})
                            for (const double p : {0.0, 0.1})
                                if (repeats != Repeats::no_mask || mask == boolean)
                                    calls.push_back({.batch = 2,
                                                     .heads = 4,
                                                     .groups = groups,
                                                     .queries = 200,
                                                     .keys = causal ? 200 : 141,
                                                     .depth = depth,
                                                     .causal = causal,
                                                     .dtype = dtype,
                                                     .repeats = repeats,
                                                     .mask = mask,
                                                     .dropout_p = p});
    return calls;
}

class CudnnGraph : public testing::Test {
  protected:
    void SetUp() override {
        if (functions() == nullptr) GTEST_SKIP() << "there is no cuDNN";
    }
};

TEST_F(CudnnGraph, AcceptsAttention) {
    for (const Call& c : all_calls()) EXPECT_NO_THROW(forward(c).finish(nullptr)) << c;
}

TEST_F(CudnnGraph, AcceptsAttentionBackward) {
    for (const Call& c : all_calls())
        for (const bool deterministic : {false, true})
            EXPECT_NO_THROW(backward(c, deterministic).finish(nullptr))
                << c << ", deterministic: " << deterministic;
}

TEST_F(CudnnGraph, ReturnsEachTensorOfAttentionByItsEnumerator) {
    const Call c = {2,   4,  2, 64, 48, 32, false, f16, Layout::heads_inside, Repeats::heads,
                    f32, 0.1};
    const auto kinds = [](const Graph& graph, std::initializer_list<Value> values) {
        std::vector<std::pair<cudnnDataType_t, bool>> all;
        for (const Value x : values)
            all.emplace_back(graph[x].get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
                             graph[x].get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE));
        return all;
    };
    using Kinds = std::vector<std::pair<cudnnDataType_t, bool>>;
    const std::pair half = {CUDNN_DATA_HALF, false}, number = {CUDNN_DATA_FLOAT, true},
                    floats = {CUDNN_DATA_FLOAT, false}, state = {CUDNN_DATA_INT64, false};
    using F = ForwardValues;
    EXPECT_EQ(
        kinds(forward(c), {F::q, F::k, F::v, F::out, F::lse, F::scale, F::hidden, F::kept, F::seed,
                           F::offset, F::bias}),
        (Kinds{half, half, half, half, floats, number, number, number, state, state, floats}));
    using B = BackwardValues;
    EXPECT_EQ(kinds(backward(c, false), {B::dout, B::q, B::k, B::v, B::out, B::lse, B::dq, B::dk,
                                         B::dv, B::delta, B::scale, B::hidden, B::kept, B::unit,
                                         B::seed, B::offset, B::dq_sum, B::bias}),
              (Kinds{half, half, half, half, half, floats, half, half, half, floats, number, number,
                     number, number, state, state, floats, floats}));
}

TEST_F(CudnnGraph, RejectsInconsistentSizes) {
    const auto product = [] {
        Graph graph;
        const auto a = graph.tensor(CUDNN_DATA_HALF, {1, 8, 16}, {128, 16, 1});
        const auto b = graph.tensor(CUDNN_DATA_HALF, {1, 24, 8}, {192, 8, 1});
        const auto y = graph.tensor(CUDNN_DATA_HALF, {1, 8, 8}, {64, 8, 1});
        graph.matmul(a, b, y);
        graph.finish(nullptr);
    };
    EXPECT_THROW(product(), UnsupportedGraph);
}

// Creating a plan takes half a second. Therefore this fixture does not test all_calls(), but
// kShapes and one call for each kind of mask with and without causality.
class CudnnAttentionPlan : public DescribedGpu {
  protected:
    void SetUp() override {
        if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) == nullptr)
            GTEST_SKIP() << "plans of attention need a driver";
        DescribedGpu::SetUp();
    }
};

TEST_F(CudnnAttentionPlan, ExistsForEachShapeAndKindOfMaskInALongRun) {
    std::vector<Call> calls(std::begin(kShapes), std::end(kShapes));
    for (const Repeats repeats : {Repeats::no_mask, Repeats::nothing, Repeats::heads,
                                  Repeats::batch_and_heads, Repeats::queries_and_heads})
        for (const bool causal : {false, true})
            calls.push_back({2, 4, causal ? 2 : 4, 200, causal ? 200 : 141, causal ? 256 : 16,
                             causal, causal ? f16 : bf16, Layout::heads_inside, repeats,
                             causal ? f32 : boolean, 0.1});
    for (const Call& c : calls) {
        EXPECT_TRUE(workspace(forward(c), Limits())) << c;
        EXPECT_TRUE(workspace(backward(c, false), Limits())) << c;
        EXPECT_TRUE(workspace(backward(c, true), Limits())) << c << ", deterministic";
    }
}

TEST(CudnnKey, DependsOnStridesDTypeAndAlignmentOfViews) {
    alignas(16) float memory[16] = {};
    View x;
    x.data = memory, x.ndim = 2, x.shape[0] = 2, x.shape[1] = 4, x.stride[0] = 4, x.stride[1] = 1;
    const auto key_of = [](const View& view) {
        Key key;
        append(key, view);
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
}  // namespace axle::kernels::cudnn

#endif  // AXLE_CUDA
