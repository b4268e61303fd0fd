#include "kernels/cuda/cudnn_attention.h"

#include <algorithm>
#include <limits>

namespace axle::inline v0::kernels::cudnn {
namespace {

// Before 9.6 the sum of dq had to be cleared by the caller; 9.10.0 and 9.10.1 have a wrong backward
// pass, and up to 9.15.0 it is wrong where the keys are no multiple of 128.
constexpr std::int64_t kOldest = 90600;
bool has_backward(std::int64_t keys) {
    const std::int64_t v = version();
    return v != 91000 && v != 91001 && (v > 91500 || keys % 128 == 0);
}

// Below this many multiplications of a product, and for a few queries at a time (as where a text
// grows word by word), the own kernels are quick and a plan for each new length is not.
constexpr std::int64_t kFewest = 1 << 20;
constexpr std::int64_t kFewestQueries = 16;

// Of the partial sums that the deterministic backward pass keeps; they grow with the square of the
// length.
constexpr std::int64_t kMostWorkspace = std::int64_t{2} << 30;

// Rows of 16-bit numbers, each aligned to 16 bytes.
bool suits(const ConstView& x) {
    if (reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0 || x.stride[3] != 1) return false;
    for (int d = 0; d < 3; ++d)
        if (x.shape[d] != 1 && (x.stride[d] <= 0 || x.stride[d] % 8 != 0)) return false;
    return true;
}

bool suits(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& mask,
           const AttentionParams& params, const ConstView& out, const ConstView& lse) {
    const std::int64_t depth = q.shape[3], queries = q.shape[2];
    const std::int64_t work = q.numel() * k.shape[2];
    return is_half(q.dtype) && depth % 8 == 0 && depth >= 16 && depth <= 256 &&
           mask.data == nullptr && params.dropout_p == 0 &&
           (!params.causal || (params.causal_offset == 0 && queries == k.shape[2])) &&
           queries >= kFewestQueries && work >= kFewest && suits(q) && suits(k) && suits(v) &&
           suits(out) && lse.contiguous() && reinterpret_cast<std::uintptr_t>(lse.data) % 16 == 0 &&
           version() >= kOldest;
}

// Sizes of 1 get the stride of a row-major tensor around the rest, whatever theirs is.
Dims strides_of(const ConstView& x) {
    std::int64_t extent = 8;
    for (int d = 0; d < x.ndim; ++d)
        if (x.shape[d] != 1) extent = std::max(extent, x.shape[d] * x.stride[d]);
    Dims strides(x.stride, x.stride + x.ndim);
    for (int d = 0; d + 1 < x.ndim; ++d)
        if (x.shape[d] == 1) strides[static_cast<std::size_t>(d)] = extent;
    return strides;
}
Value rows_of(Graph& graph, const ConstView& x) {
    return graph.tensor(data_type(x.dtype), Dims(x.shape, x.shape + 4), strides_of(x));
}
// x with its rows and columns swapped.
Value columns_of(Graph& graph, const ConstView& x) {
    Dims dims(x.shape, x.shape + 4), strides = strides_of(x);
    std::swap(dims[2], dims[3]), std::swap(strides[2], strides[3]);
    return graph.tensor(data_type(x.dtype), dims, strides);
}

// The sizes of a call and the pieces of graph that both passes share.
struct Scores {
    Graph& graph;
    Dims dims;  // [B, H, Tq, Tk]
    Dims row;   // [B, H, Tq, 1]

    Scores(Graph& graph_, const ConstView& q, const ConstView& k) : graph(graph_) {
        dims = {q.shape[0], q.shape[1], q.shape[2], k.shape[2]};
        row = {dims[0], dims[1], dims[2], 1};
    }

    Value temporary(cudnnDataType_t type = CUDNN_DATA_FLOAT) const {
        return graph.temporary(type, dims);
    }
    Value with(cudnnPointwiseMode_t mode, Value x, Value b) const {
        return graph.pointwise(mode, {x, b}, temporary());
    }
    // Key j is hidden from query i < j.
    Value causal(Value x, Value hidden) const {
        const Value i = graph.index(x, 2, temporary(CUDNN_DATA_INT32));
        const Value j = graph.index(x, 3, temporary(CUDNN_DATA_INT32));
        const Value seen = graph.pointwise(CUDNN_POINTWISE_CMP_GE, {i, j},
                                           temporary(CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN);
        return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {x, hidden, seen}, temporary());
    }
    Value of_rows() const { return graph.temporary(CUDNN_DATA_FLOAT, row); }
    // [B, H, Tk, Tq] of the operands' dtype.
    Value turned(Value x, cudnnDataType_t type) const {
        const Dims strides = row_major(dims);
        return graph.reshape(x, graph.temporary(type, {dims[0], dims[1], dims[3], dims[2]},
                                                {strides[0], strides[1], strides[3], strides[2]}));
    }
    // y [B, G, Tk, D] = turned x [B, H, Tq, D], summed over the heads that share a group.
    void sum_of_queries(Value turned, Value x, std::int64_t groups, std::int64_t depth,
                        cudnnDataType_t type, Value y) const {
        if (groups == dims[1]) {
            graph.matmul(turned, x, y);
            return;
        }
        const Value heads =
            graph.matmul(turned, x, graph.temporary(type, {dims[0], dims[1], dims[3], depth}));
        graph.reduce(CUDNN_REDUCE_TENSOR_ADD, heads, y);
    }
};

// What a hidden score is: older versions make NaN of an infinity.
float hidden_score() {
    return version() < 91000 ? std::numeric_limits<float>::lowest()
                             : -std::numeric_limits<float>::infinity();
}

enum Kind : std::int64_t { kForward = 1, kBackward = 2 };

PlanCache& plans() {
    static auto* const cache = new PlanCache;
    return *cache;
}

View dense_like(const ConstView& x, void* data) {
    View y;
    y.data = data, y.dtype = x.dtype, y.ndim = x.ndim;
    std::int64_t stride = 1;
    for (int d = x.ndim - 1; d >= 0; --d) {
        y.shape[d] = x.shape[d], y.stride[d] = stride;
        stride *= x.shape[d];
    }
    return y;
}

}  // namespace

Graph attention_graph(const ConstView& q, const ConstView& k, const ConstView& v, bool causal,
                      const ConstView& out, const ConstView& lse) {
    Graph graph;
    const Scores scores(graph, q, k);
    const cudnnDataType_t type = data_type(q.dtype);
    const Value at_q = rows_of(graph, q), at_k = columns_of(graph, k), at_v = rows_of(graph, v);
    const Value at_out = rows_of(graph, out);
    const Value at_lse = graph.tensor(data_type(lse.dtype), scores.row, row_major(scores.row));
    const Value scale = graph.number(), hidden = graph.number();

    Value x = graph.matmul(at_q, at_k, scores.temporary());
    x = scores.with(CUDNN_POINTWISE_MUL, x, scale);
    if (causal) x = scores.causal(x, hidden);
    const Value highest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, x, scores.of_rows());
    x = scores.with(CUDNN_POINTWISE_SUB, x, highest);
    x = graph.pointwise(CUDNN_POINTWISE_EXP, {x}, scores.temporary());
    const Value sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, x, scores.of_rows());
    const Value log = graph.pointwise(CUDNN_POINTWISE_LOG, {sum}, scores.of_rows());
    graph.pointwise(CUDNN_POINTWISE_ADD, {highest, log}, at_lse);
    const Value weights = graph.pointwise(CUDNN_POINTWISE_DIV, {x, sum}, scores.temporary(type));
    graph.matmul(weights, at_v, at_out);
    return graph;
}

Graph attention_backward_graph(const ConstView& dout, const ConstView& q, const ConstView& k,
                               const ConstView& v, bool causal, const ConstView& out,
                               const ConstView& lse, const ConstView& dq, const ConstView& dk,
                               const ConstView& dv, bool deterministic) {
    Graph graph;
    const Scores scores(graph, q, k);
    const cudnnDataType_t type = data_type(q.dtype);
    const std::int64_t groups = k.shape[1], depth = q.shape[3];
    const Dims of_q(q.shape, q.shape + 4);
    const Value at_dout = rows_of(graph, dout), at_q = rows_of(graph, q);
    const Value at_k = columns_of(graph, k), at_v = columns_of(graph, v);
    const Value at_out = rows_of(graph, out);
    const Value at_lse = graph.tensor(data_type(lse.dtype), scores.row, row_major(scores.row));
    const Value at_dq = rows_of(graph, dq), at_dk = rows_of(graph, dk), at_dv = rows_of(graph, dv);
    const Value delta = graph.tensor(CUDNN_DATA_FLOAT, scores.row, row_major(scores.row));
    const Value scale = graph.number(), one = graph.number(), hidden = graph.number();
    const Value dq_sum = graph.tensor(CUDNN_DATA_FLOAT, of_q, row_major(of_q));

    const Value both = graph.pointwise(CUDNN_POINTWISE_MUL, {at_dout, at_out},
                                       graph.temporary(CUDNN_DATA_FLOAT, of_q));
    const Value sums = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, both, scores.of_rows());
    graph.pointwise(CUDNN_POINTWISE_MUL, {sums, one}, delta);

    Value x = graph.matmul(at_q, at_k, scores.temporary());
    x = scores.with(CUDNN_POINTWISE_MUL, x, scale);
    x = scores.with(CUDNN_POINTWISE_SUB, x, at_lse);
    if (causal) x = scores.causal(x, hidden);
    const Value weights = graph.pointwise(CUDNN_POINTWISE_EXP, {x}, scores.temporary());
    scores.sum_of_queries(scores.turned(weights, type), at_dout, groups, depth, type, at_dv);

    x = graph.matmul(at_dout, at_v, scores.temporary());
    x = scores.with(CUDNN_POINTWISE_SUB, x, delta);
    x = scores.with(CUDNN_POINTWISE_MUL, x, weights);
    const Value gradient = scores.with(CUDNN_POINTWISE_MUL, x, scale);
    scores.sum_of_queries(scores.turned(gradient, type), at_q, groups, depth, type, at_dk);

    const Value k_rows = graph.reshape(
        at_k, graph.temporary(CUDNN_DATA_FLOAT, Dims(k.shape, k.shape + 4), strides_of(k)));
    if (deterministic) {
        graph.matmul(gradient, k_rows, at_dq);
    } else {
        graph.matmul(gradient, k_rows, dq_sum);
        graph.pointwise(CUDNN_POINTWISE_IDENTITY, {dq_sum}, at_dq);
    }
    return graph;
}

bool attention(Cuda& on, const ConstView& q, const ConstView& k, const ConstView& v,
               const ConstView& mask, const AttentionParams& params, const View& out,
               const View& lse) {
    if (!suits(q, k, v, mask, params, out, lse)) return false;
    Key key = {kForward, params.causal};
    for (const ConstView& x : {q, k, v, ConstView(out)}) append(key, x);
    const Plan* const plan = plans().find(
        on, std::move(key), {}, [&] { return attention_graph(q, k, v, params.causal, out, lse); });
    if (plan == nullptr) return false;

    const auto scale = static_cast<float>(params.scale);
    const float hidden = hidden_score();
    using Values = ForwardValues;
    const Binding bindings[] = {{Values::q, q.data},      {Values::k, k.data},
                                {Values::v, v.data},      {Values::out, out.data},
                                {Values::lse, lse.data},  {Values::scale, &scale},
                                {Values::hidden, &hidden}};
    // `hidden`, the last, is only there under causal.
    plan->run(on, std::span(bindings).first(params.causal ? 7 : 6));
    return true;
}

bool attention_backward(Cuda& on, const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& mask, const ConstView& out,
                        const ConstView& lse, const AttentionParams& params, const View& dq,
                        const View& dk, const View& dv) {
    // A gradient that nobody wants goes to scratch.
    const auto like = [](const View& x, const ConstView& y) {
        return x.data != nullptr ? x : dense_like(y, nullptr);
    };
    View to_dq = like(dq, q), to_dk = like(dk, k), to_dv = like(dv, v);
    if (!suits(q, k, v, mask, params, out, lse) || !suits(dout) || !suits(to_dq) || !suits(to_dk) ||
        !suits(to_dv) || !has_backward(k.shape[2]))
        return false;
    Key key = {kBackward, params.causal};
    for (const ConstView& x :
         {dout, q, k, v, out, ConstView(to_dq), ConstView(to_dk), ConstView(to_dv)})
        append(key, x);
    const Limits limits = {.deterministic = false,
                           .workspace = on.deterministic ? kMostWorkspace : Limits().workspace};
    key.push_back(on.deterministic);
    const Plan* const plan = plans().find(on, std::move(key), limits, [&] {
        return attention_backward_graph(dout, q, k, v, params.causal, out, lse, to_dq, to_dk, to_dv,
                                        on.deterministic);
    });
    if (plan == nullptr) return false;

    DeviceScratch scratch(on);
    for (View* const x : {&to_dq, &to_dk, &to_dv})
        if (x->data == nullptr) x->data = scratch.take<char>(x->numel() * size_of(x->dtype));
    const auto scale = static_cast<float>(params.scale);
    const float one = 1, hidden = hidden_score();
    using Values = BackwardValues;
    std::vector<Binding> bindings = {
        {Values::dout, dout.data}, {Values::q, q.data},
        {Values::k, k.data},       {Values::v, v.data},
        {Values::out, out.data},   {Values::lse, lse.data},
        {Values::dq, to_dq.data},  {Values::dk, to_dk.data},
        {Values::dv, to_dv.data},  {Values::delta, scratch.take<float>(lse.numel())},
        {Values::scale, &scale},   {Values::one, &one}};
    if (params.causal) bindings.push_back({Values::hidden, &hidden});
    if (!on.deterministic) bindings.push_back({Values::dq_sum, scratch.take<float>(q.numel())});
    plan->run(on, bindings);
    return true;
}

}  // namespace axle::inline v0::kernels::cudnn
