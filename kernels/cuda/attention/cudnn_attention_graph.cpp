// Graphs of attention. cuDNN's attention engines recognize exactly these operations in this order;
// equivalent formulas have no engine.
#include "kernels/cuda/attention/cudnn_attention_graph.h"

#include <algorithm>
#include <utility>

namespace axle::kernels::cudnn {
namespace {

// Returns the strides of x. The stride of a dimension of size 1 (except the last) is arbitrary. It
// is replaced by the largest product of size and stride of the other dimensions, or by 8 if that
// product is less than 8.
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
// Adds a tensor for x with its last two dimensions swapped.
Value columns_of(Graph& graph, const ConstView& x) {
    Dims dims(x.shape, x.shape + 4), strides = strides_of(x);
    std::swap(dims[2], dims[3]), std::swap(strides[2], strides[3]);
    return graph.tensor(data_type(x.dtype), dims, strides);
}
// Adds a tensor for one i64 in device memory.
Value scalar(Graph& graph) { return graph.tensor(CUDNN_DATA_INT64, {1, 1, 1, 1}, {1, 1, 1, 1}); }

// The sizes of a call and the parts of the graph that both passes share.
struct Scores {
    Graph& graph;
    const AttentionTensors& at;
    Dims dims;  // the shape [B, H, Tq, Tk] of the scores
    Dims row;   // the shape [B, H, Tq, 1] of one number per query

    Scores(Graph& graph_, const AttentionTensors& at_) : graph(graph_), at(at_) {
        dims = {at.q.shape[0], at.q.shape[1], at.q.shape[2], at.k.shape[2]};
        row = {dims[0], dims[1], dims[2], 1};
    }

    Value temporary(cudnnDataType_t type = CUDNN_DATA_FLOAT) const {
        return graph.temporary(type, dims);
    }
    Value of_rows() const { return graph.temporary(CUDNN_DATA_FLOAT, row); }
    Value with(cudnnPointwiseMode_t mode, Value x, Value b) const {
        return graph.pointwise(mode, {x, b}, temporary());
    }

    // bias() returns the tensor of the bias, or an unused number if there is no bias. biased()
    // returns x plus the bias, or x if there is no bias.
    Value bias() const { return at.bias.ndim == 0 ? graph.number() : rows_of(graph, at.bias); }
    Value biased(Value x, Value bias) const {
        return at.bias.ndim == 0 ? x : with(CUDNN_POINTWISE_ADD, x, bias);
    }
    // Returns x with the score of query i and key j replaced by `hidden` if i < j. Returns x itself
    // if the call is not causal.
    Value masked(Value x, Value hidden) const {
        if (!at.causal) return x;
        const Value i = graph.index(x, 2, temporary(CUDNN_DATA_INT32));
        const Value j = graph.index(x, 3, temporary(CUDNN_DATA_INT32));
        const Value seen = graph.pointwise(CUDNN_POINTWISE_CMP_GE, {i, j},
                                           temporary(CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN);
        return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {x, hidden, seen}, temporary());
    }
    // Returns a tensor that contains 1 for each kept weight and 0 for each dropped weight.
    Value keep_mask(Value seed, Value offset) const {
        return graph.bernoulli(1 - at.dropout_p, seed, offset, temporary());
    }

    // Returns x transposed to [B, H, Tk, Tq], in the operands' dtype.
    Value transposed_weights(Value x) const {
        const Dims strides = row_major(dims);
        return graph.reshape(
            x, graph.temporary(data_type(at.q.dtype), {dims[0], dims[1], dims[3], dims[2]},
                               {strides[0], strides[1], strides[3], strides[2]}));
    }
    // Adds the product y [B, G, Tk, D] of transposed_weights and x [B, H, Tq, D], summed over the
    // query heads of each key-value head.
    void sum_of_queries(Value transposed_weights, Value x, Value y) const {
        if (at.k.shape[1] == dims[1]) {
            graph.matmul(transposed_weights, x, y);
            return;
        }
        const Value heads = graph.matmul(
            transposed_weights, x,
            graph.temporary(data_type(at.q.dtype), {dims[0], dims[1], dims[3], at.q.shape[3]}));
        graph.reduce(CUDNN_REDUCE_TENSOR_ADD, heads, y);
    }
};

}  // namespace

Graph attention_graph(const AttentionTensors& at) {
    Graph graph;
    const Scores scores(graph, at);
    const Value q = rows_of(graph, at.q), k = columns_of(graph, at.k), v = rows_of(graph, at.v);
    const Value out = rows_of(graph, at.out);
    const Value lse = graph.tensor(data_type(at.lse.dtype), scores.row, row_major(scores.row));
    const Value scale = graph.number(), hidden = graph.number(), kept = graph.number();
    const Value seed = scalar(graph), offset = scalar(graph), bias = scores.bias();

    Value x = graph.matmul(q, k, scores.temporary());
    x = scores.with(CUDNN_POINTWISE_MUL, x, scale);
    x = scores.masked(scores.biased(x, bias), hidden);
    const Value highest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, x, scores.of_rows());
    x = scores.with(CUDNN_POINTWISE_SUB, x, highest);
    x = graph.pointwise(CUDNN_POINTWISE_EXP, {x}, scores.temporary());
    const Value sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, x, scores.of_rows());
    const Value log = graph.pointwise(CUDNN_POINTWISE_LOG, {sum}, scores.of_rows());
    graph.pointwise(CUDNN_POINTWISE_ADD, {highest, log}, lse);
    // cuDNN's products require operands of this dtype, so the last operation on the weights
    // converts them.
    const cudnnDataType_t type = data_type(at.q.dtype);
    if (at.dropout_p > 0) {
        x = scores.with(CUDNN_POINTWISE_DIV, x, sum);
        x = scores.with(CUDNN_POINTWISE_MUL, x, scores.keep_mask(seed, offset));
        x = graph.pointwise(CUDNN_POINTWISE_MUL, {x, kept}, scores.temporary(type));
    } else {
        x = graph.pointwise(CUDNN_POINTWISE_DIV, {x, sum}, scores.temporary(type));
    }
    graph.matmul(x, v, out);
    return graph;
}

// Builds the graph of the gradients. P is the matrix of weights, r is the keep mask and kept = 1 /
// (1 - p). Then dv = (P r kept)^T dout, and dscores = P (dP r - delta / kept) kept, where dP = dout
// v^T and delta = rowsum(dout * out).
Graph attention_backward_graph(const AttentionTensors& at, const AttentionGradients& gradients) {
    Graph graph;
    const Scores scores(graph, at);
    const bool drops = at.dropout_p > 0;
    const Dims of_q(at.q.shape, at.q.shape + 4);
    const Value dout = rows_of(graph, gradients.dout), q = rows_of(graph, at.q);
    const Value k = columns_of(graph, at.k), v = columns_of(graph, at.v);
    const Value out = rows_of(graph, at.out);
    const Value lse = graph.tensor(data_type(at.lse.dtype), scores.row, row_major(scores.row));
    const Value dq = rows_of(graph, gradients.dq), dk = rows_of(graph, gradients.dk);
    const Value dv = rows_of(graph, gradients.dv);
    const Value delta = graph.tensor(CUDNN_DATA_FLOAT, scores.row, row_major(scores.row));
    const Value scale = graph.number(), hidden = graph.number(), kept = graph.number();
    const Value unit = graph.number(), seed = scalar(graph), offset = scalar(graph);
    const Value dq_sum = graph.tensor(CUDNN_DATA_FLOAT, of_q, row_major(of_q));
    const Value bias = scores.bias();

    const Value keep_mask = drops ? scores.keep_mask(seed, offset) : Value();
    const Value both =
        graph.pointwise(CUDNN_POINTWISE_MUL, {dout, out}, graph.temporary(CUDNN_DATA_FLOAT, of_q));
    const Value sums = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, both, scores.of_rows());
    graph.pointwise(CUDNN_POINTWISE_MUL, {sums, unit}, delta);

    Value x = graph.matmul(q, k, scores.temporary());
    x = scores.biased(scores.with(CUDNN_POINTWISE_MUL, x, scale), bias);
    x = scores.with(CUDNN_POINTWISE_SUB, x, lse);
    x = scores.masked(x, hidden);
    const Value weights = graph.pointwise(CUDNN_POINTWISE_EXP, {x}, scores.temporary());
    x = weights;
    if (drops) {
        x = scores.with(CUDNN_POINTWISE_MUL, x, keep_mask);
        x = scores.with(CUDNN_POINTWISE_MUL, x, kept);
    }
    scores.sum_of_queries(scores.transposed_weights(x), dout, dv);

    x = graph.matmul(dout, v, scores.temporary());
    if (drops) x = scores.with(CUDNN_POINTWISE_MUL, x, keep_mask);
    x = scores.with(CUDNN_POINTWISE_SUB, x, delta);
    x = scores.with(CUDNN_POINTWISE_MUL, x, weights);
    if (drops) x = scores.with(CUDNN_POINTWISE_MUL, x, kept);
    const Value gradient = scores.with(CUDNN_POINTWISE_MUL, x, scale);
    scores.sum_of_queries(scores.transposed_weights(gradient), q, dk);

    const Value k_rows = graph.reshape(
        k, graph.temporary(CUDNN_DATA_FLOAT, Dims(at.k.shape, at.k.shape + 4), strides_of(at.k)));
    if (gradients.deterministic) {
        graph.matmul(gradient, k_rows, dq);
    } else {
        graph.matmul(gradient, k_rows, dq_sum);
        graph.pointwise(CUDNN_POINTWISE_IDENTITY, {dq_sum}, dq);
    }
    return graph;
}

}  // namespace axle::kernels::cudnn
