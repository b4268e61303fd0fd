// Matrix products. cuBLASLt computes the products that it supports, and Axle's own kernel
// (simt_matmul.cu) computes all other products. An operand that cuBLASLt cannot read is copied
// first. cuBLASLt applies as much of the epilogue as it can. These variants are tried in order:
//     the complete epilogue           one pass over c
//     the bias; then the activation   one more pass, from the argument after rounding
//     no epilogue; then all of it     the sums are stored in scratch memory, in f32 or f64
// A multiplication by the activation's slope uses the same variants.
//
// cuBLASLt stores matrices by columns, and Axle stores them by rows. So cuBLASLt computes the
// transpose, c^T = b^T a^T, with b as the first operand and a as the second.
#include "kernels/ops/matmul.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/matmul/simt_matmul.h"
#include "kernels/cuda/visit.cuh"
#include "kernels/error.h"
#include "kernels/ops/pointwise.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

// The maximum number of matrices per call; larger batches are split.
constexpr std::int64_t kMaxBatches = 65535;

// The layout of a matrix: row-major, or column-major if it is transposed.
struct Layout {
    bool transposed;
    std::int64_t ld;
};

template <class V>
std::optional<Layout> layout_of(const V& x) {
    for (int d = 0; d + 2 < x.ndim; ++d)
        if (x.stride[d] < 0) return std::nullopt;
    const std::int64_t rows = x.back(2), columns = x.back(1);
    const std::int64_t down = x.back_stride(2), right = x.back_stride(1);
    if ((right == 1 || columns == 1) && (down >= columns || rows == 1))
        return Layout{false, rows == 1 ? columns : down};
    if ((down == 1 || rows == 1) && (right >= rows || columns == 1))
        return Layout{true, columns == 1 ? rows : right};
    return std::nullopt;
}
template <class V>
bool by_rows(const V& x) {
    const auto layout = layout_of(x);
    return layout && !layout->transposed;
}

// Returns x, or a copy that is stored by rows if cuBLASLt cannot read x. Broadcast batch dimensions
// are copied once.
ConstView with_layout(Cuda& on, DeviceScratch& scratch, ConstView x) {
    if (layout_of(x)) return x;
    ConstView once = x;
    for (int d = 0; d + 2 < x.ndim; ++d)
        if (x.stride[d] == 0) once.shape[d] = 1;
    ConstView copied =
        dense_like(once, scratch.take<char>(once.numel() * size_of(x.dtype)), x.dtype);
    copy(on, once, dense_like(once, const_cast<void*>(copied.data), x.dtype));
    for (int d = 0; d + 2 < x.ndim; ++d) {
        copied.shape[d] = x.shape[d];
        if (x.stride[d] == 0) copied.stride[d] = 0;
    }
    return copied;
}

// Returns 256, cuBLASLt's default, if the address and bytes_between are multiples of 256, else
// their common alignment in bytes, at most 16.
std::int64_t alignment(const void* data, std::int64_t bytes_between) {
    const auto bits =
        reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(bytes_between);
    if (bits % 256 == 0) return 256;
    return static_cast<std::int64_t>(std::min<std::uintptr_t>(bits & (~bits + 1), 16));
}

// The operations that cuBLASLt applies to the sums. `vector` is the bias in c's dtype, or the
// output for the row sums of a. `aux` is the auxiliary tensor of the epilogue, if it has one.
struct Extras {
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* vector = nullptr;
    ConstView aux = {};
};

// Computes d = f(a b + added), where f is the epilogue in `extras`. d and tensors of its shape are
// stored by rows; `added` is optional. If cuBLASLt has no algorithm for the product or a dimension
// is 2^31 or more, returns false and does not change d. Throws CudaError if cuBLASLt rejects a
// later part of the batch.
bool product(Cuda& on, ConstView a, ConstView b, ConstView added, View d, const Extras& extras) {
    DeviceScratch scratch(on);
    a = with_layout(on, scratch, a), b = with_layout(on, scratch, b);
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    if (std::max({d.back(2), d.back(1), a.back(1)}) > kMax) return false;

    LtProduct lt;
    lt.rows = d.back(1), lt.columns = d.back(2), lt.depth = a.back(1);
    lt.in = a.dtype, lt.out = d.dtype, lt.epilogue = extras.epilogue;

    // The batch is merged into as few dimensions as possible. cuBLASLt processes the innermost
    // batch dimension in one call.
    const std::array<ConstView, 5> views = {d, a, b, added.data == nullptr ? d : added,
                                            extras.aux.data == nullptr ? d : extras.aux};
    std::array<ConstView, 5> batches = views;
    for (ConstView& batch : batches) batch.ndim -= 2;
    const Walk<5> walk(batches);
    enum { kD, kA, kB, kAdded, kAux };
    const std::array<LtMatrix*, 5> matrices = {&lt.d, &lt.b, &lt.a, &lt.c, &lt.aux};
    for (std::size_t i = 0; i < 5; ++i) {
        const bool absent =
            (i == kAdded && added.data == nullptr) || (i == kAux && extras.aux.data == nullptr);
        if (absent) continue;
        const Layout layout = *layout_of(views[i]);
        const int operand = static_cast<int>(i);
        std::int64_t between = 0;
        for (int k = 0; k < walk.ndim(); ++k) between |= walk.stride(operand, k);
        LtMatrix& matrix = *matrices[i];
        matrix.data = views[i].data, matrix.ld = layout.ld, matrix.batch = walk.stride(operand);
        matrix.transposed = layout.transposed;
        matrix.alignment = alignment(views[i].data, between * size_of(views[i].dtype));
    }
    if (extras.vector != nullptr) {
        lt.vector.data = extras.vector;
        lt.vector.alignment = alignment(extras.vector, 0);
    }

    bool first = true;
    for (std::int64_t row = 0; row < walk.rows(); ++row) {
        const auto offsets = walk.offsets(row);
        for (std::int64_t done = 0; done < walk.width(); done += kMaxBatches) {
            lt.batches = std::min(kMaxBatches, walk.width() - done);
            for (std::size_t i = 0; i < 5; ++i)
                if (matrices[i]->data != nullptr)
                    matrices[i]->data =
                        at(views[i].data, views[i].dtype, offsets[i] + done * matrices[i]->batch);
            if (!lt_matmul(on, lt)) {
                if (first) return false;
                throw CudaError(str(current_op, ": cuBLASLt rejected a call after it had computed ",
                                    row * walk.width() + done, " of ", walk.rows() * walk.width(),
                                    " matrices of the batch"));
            }
            first = false;
        }
    }
    return true;
}

// Returns whether cuBLASLt is available and supports these dtypes, and the depth is not 0.
bool multiplies(const ConstView& a, const View& c) {
    const bool types =
        is_floating(a.dtype) && (c.dtype == a.dtype || (is_half(a.dtype) && c.dtype == DType::f32));
    return types && a.back(1) > 0 && cublaslt() != nullptr;
}

// Returns whether cuBLASLt can read or write a vector at this address. Algorithms access biases and
// bias gradients 16 bytes at a time. cuBLASLt's heuristic ignores the alignment of these vectors,
// so it can return such an algorithm for any address (github.com/pytorch/pytorch/pull/194497).
bool is_aligned_vector(const void* data) { return alignment(data, 0) >= 16; }

// Returns whether x can be an auxiliary tensor of cuBLASLt, whose rows must be aligned to 16 bytes.
bool is_auxiliary(const ConstView& x) {
    const auto layout = layout_of(x);
    if (!layout || layout->transposed) return false;
    std::int64_t between = layout->ld;
    for (int d = 0; d + 2 < x.ndim; ++d) between |= x.stride[d];
    return alignment(x.data, between * size_of(x.dtype)) >= 16;
}

// An optional auxiliary tensor with d's layout: either `pre`, which receives the activation's
// argument, or `slope_of`, which contains the arguments of the activation's slope.
struct Auxiliary {
    View pre;
    ConstView slope_of;
};

// Returns the epilogue of cuBLASLt that applies the activation and stores its argument, or that
// multiplies the sums by the slope. Returns nullopt if cuBLASLt has no such epilogue. cuBLASLt's
// GELU is an approximation that is accurate enough for 16-bit results only. Its ReLU is documented
// as max(x, 0), which can lose a NaN that Axle's ReLU preserves.
std::optional<cublasLtEpilogue_t> fused(const MatmulEpilogue& epilogue, const View& c,
                                        const Auxiliary& aux) {
    const bool stores = aux.pre.data != nullptr, slopes = aux.slope_of.data != nullptr;
    switch (epilogue.activation) {
        case Activation::none:
            if (!stores) return CUBLASLT_EPILOGUE_DEFAULT;
            return std::nullopt;
        case Activation::gelu_tanh:
            if (!is_half(c.dtype)) return std::nullopt;
            if (slopes) {
                const bool alone = !epilogue.accumulate && epilogue.bias.data == nullptr;
                if (!alone || !is_auxiliary(aux.slope_of)) return std::nullopt;
                return CUBLASLT_EPILOGUE_DGELU;
            }
            if (!stores) return CUBLASLT_EPILOGUE_GELU;
            if (!is_auxiliary(aux.pre)) return std::nullopt;
            return CUBLASLT_EPILOGUE_GELU_AUX;
        default:
            return std::nullopt;
    }
}

cublasLtEpilogue_t with_bias(cublasLtEpilogue_t epilogue) {
    if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLASLT_EPILOGUE_BIAS;
    return static_cast<cublasLtEpilogue_t>(epilogue | CUBLASLT_EPILOGUE_BIAS);
}

// Computes c = activation(x), or c = x activation'(slope_of) if slope_of has data.
void activate(Cuda& on, Activation activation, ConstView x, ConstView slope_of, View c) {
    if (activation == Activation::none) {
        if (x.data != c.data) copy(on, x, c);
        return;
    }
    formula::visit_activation(activation, [&](auto f) {
        if (slope_of.data == nullptr) return unary(on, f, x, c);
        unary_slope(on, f, x, slope_of, c);
    });
}

// Computes the product in scratch memory and copies the results. Used if c or the argument of the
// activation is stored neither by rows nor by columns, or if their layouts differ.
void matmul_by_copy(Cuda& on, const ConstView& a, const ConstView& b, const View& c,
                    const MatmulEpilogue& epilogue) {
    DeviceScratch scratch(on);
    const auto dense = [&](const View& x) {
        return dense_like(x, scratch.take<char>(x.numel() * size_of(x.dtype)), x.dtype);
    };
    const View out = dense(c);
    if (epilogue.accumulate) copy(on, c, out);
    MatmulEpilogue inner = epilogue;
    if (epilogue.pre.data != nullptr) inner.pre = dense(epilogue.pre);
    matmul(on, a, b, out, inner);
    copy(on, out, c);
    if (epilogue.pre.data != nullptr) copy(on, inner.pre, epilogue.pre);
}

}  // namespace

void matmul(Cuda& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue) {
    if (epilogue.stores_slopes) throw ValueError("matmul: stores_slopes is not supported on a GPU");
    if (c.numel() == 0) return;
    if (!multiplies(a, c)) return simt_matmul(on, a, b, c, epilogue);

    // In the code below, d is c, or the transpose of c if c is stored by columns.
    View d = c;
    Auxiliary aux = {epilogue.pre, {}};
    if (epilogue.activation != Activation::none) aux.slope_of = epilogue.slope_of;
    ConstView left = a, right = b;
    const bool flipped = !by_rows(c);
    if (flipped) {
        left = transposed(b), right = transposed(a), d = transposed(c);
        if (aux.pre.data != nullptr) aux.pre = transposed(aux.pre);
        if (aux.slope_of.data != nullptr) aux.slope_of = transposed(aux.slope_of);
    }
    if (!by_rows(d) || (aux.pre.data != nullptr && !by_rows(aux.pre)))
        return matmul_by_copy(on, a, b, c, epilogue);

    const ConstView& bias = epilogue.bias;
    const ConstView added = epilogue.accumulate ? ConstView(d) : ConstView();
    const bool adds_bias = bias.data == nullptr ||
                           (!flipped && bias.dtype == c.dtype && is_aligned_vector(bias.data) &&
                            (bias.back_stride(1) == 1 || bias.back(1) == 1));
    if (adds_bias) {
        const auto extras = [&](cublasLtEpilogue_t e) {
            return Extras{bias.data == nullptr ? e : with_bias(e), bias.data};
        };
        if (const auto whole = fused(epilogue, c, aux)) {
            Extras all = extras(*whole);
            all.aux = aux.slope_of.data != nullptr ? aux.slope_of : ConstView(aux.pre);
            if (product(on, left, right, added, d, all)) return;
        }
        const View argument = aux.pre.data != nullptr ? aux.pre : d;
        if ((epilogue.activation != Activation::none || aux.pre.data != nullptr) &&
            product(on, left, right, added, argument, extras(CUBLASLT_EPILOGUE_DEFAULT)))
            return activate(on, epilogue.activation, argument, aux.slope_of, d);
    }

    DeviceScratch scratch(on);
    const DType wide = c.dtype == DType::f64 ? f64 : f32;
    const View sums = dense_like(d, scratch.take<char>(d.numel() * size_of(wide)), wide);
    if (epilogue.accumulate) copy(on, d, sums);
    if (product(on, left, right, epilogue.accumulate ? ConstView(sums) : ConstView(), sums, {}))
        return finish_product(on, flipped ? transposed(sums) : sums, c, epilogue);
    report_no_algorithm();
    simt_matmul(on, a, b, c, epilogue);
}

void matmul_row_sum(Cuda& on, ConstView a, ConstView b, View c, View row_sum) {
    if (c.numel() > 0 && multiplies(a, c) && row_sum.dtype == c.dtype &&
        is_aligned_vector(row_sum.data) && (row_sum.back_stride(1) == 1 || row_sum.back(1) == 1)) {
        // In cuBLASLt, a is the second operand, or the first operand if c is stored by columns.
        if (by_rows(c) && product(on, a, b, {}, c, {CUBLASLT_EPILOGUE_BGRADB, row_sum.data}))
            return;
        if (!by_rows(c) && by_rows(transposed(c)) &&
            product(on, transposed(b), transposed(a), {}, transposed(c),
                    {CUBLASLT_EPILOGUE_BGRADA, row_sum.data}))
            return;
    }
    matmul(on, a, b, c);
    column_sum(on, transposed(a), row_sum);
}

}  // namespace axle::kernels
