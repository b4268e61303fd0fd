#include "dist/group/reduce.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>

#include "kernels/error.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/pointwise.h"

namespace axle::dist {
namespace {

namespace formula = kernels::formula;

// The number of elements per block; the intermediate results of a block's tree fit into the cache.
constexpr std::int64_t kBlock = 16384;

template <class V, class Pointer>
V run_of(Pointer data, DType dtype, std::int64_t numel) {
    V view;
    view.data = data;
    view.dtype = dtype;
    view.ndim = 1;
    view.shape[0] = numel;
    view.stride[0] = 1;
    return view;
}

void combine(kernels::Cpu& on, ReduceOp op, ConstView a, ConstView b, View y) {
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::mean:
            return kernels::binary(on, formula::Add{}, a, b, y);
        case ReduceOp::max:
            return kernels::binary(on, formula::Maximum{}, a, b, y);
        case ReduceOp::min:
            return kernels::binary(on, formula::Minimum{}, a, b, y);
        case ReduceOp::product:
            return kernels::binary(on, formula::Mul{}, a, b, y);
    }
}

// Reduces several inputs in a binary tree, f16 and bf16 inputs in f32. run() reduces the elements
// [begin, begin + numel).
class ReductionTree {
  public:
    ReductionTree(kernels::Cpu& on, std::span<const void* const> from, DType dtype, ReduceOp op)
        : on_(on), from_(from), dtype_(dtype), lane_(is_half(dtype) ? f32 : dtype), op_(op) {}

    void run(void* out, std::int64_t begin, std::int64_t numel) {
        begin_ = begin, numel_ = numel;
        void* const to = static_cast<std::byte*>(out) + begin * size_of(dtype_);
        const View y = run_of<View>(to, dtype_, numel);
        if (lane_ == dtype_) {
            combine_range(0, count(), y);
            if (op_ == ReduceOp::mean) kernels::unary(on_, share(), y, y);
            return;
        }
        kernels::Scratch scratch(on_);
        const View wide = run_of<View>(scratch.take<float>(numel), f32, numel);
        combine_range(0, count(), wide);
        if (op_ == ReduceOp::mean) kernels::unary(on_, share(), wide, wide);
        kernels::copy(on_, wide, y);
    }

  private:
    int count() const { return static_cast<int>(from_.size()); }
    formula::MulScalar share() const { return {1.0 / static_cast<double>(from_.size())}; }

    ConstView source(int i) const {
        return run_of<ConstView>(static_cast<const std::byte*>(from_[static_cast<std::size_t>(i)]) +
                                     begin_ * size_of(dtype_),
                                 dtype_, numel_);
    }

    // Sets y to the combination of inputs [begin, end). y may be an input only in the last step,
    // because later steps would read the changed input.
    void combine_range(int begin, int end, View y) {
        const int runs = end - begin;
        if (runs == 1) return kernels::copy(on_, source(begin), y);
        const int left = static_cast<int>(std::bit_ceil(static_cast<unsigned>(runs)) / 2);
        kernels::Scratch scratch(on_);
        const ConstView a = side(begin, begin + left, scratch);
        const ConstView b = side(begin + left, end, scratch);
        combine(on_, op_, a, b, y);
    }

    ConstView side(int begin, int end, kernels::Scratch& scratch) {
        if (end - begin == 1 && lane_ == dtype_) return source(begin);
        const View y =
            run_of<View>(scratch.take<std::byte>(numel_ * size_of(lane_)), lane_, numel_);
        combine_range(begin, end, y);
        return y;
    }

    kernels::Cpu& on_;
    std::span<const void* const> from_;
    DType dtype_, lane_;
    ReduceOp op_;
    std::int64_t begin_ = 0, numel_ = 0;
};

}  // namespace

void reduce(kernels::Cpu& on, void* out, std::span<const void* const> from, std::int64_t numel,
            DType dtype, ReduceOp op) {
    assert(!from.empty());
    ReductionTree tree(on, from, dtype, op);
    for (std::int64_t begin = 0; begin < numel; begin += kBlock)
        tree.run(out, begin, std::min(kBlock, numel - begin));
}

const char* name_of(ReduceOp op) {
    constexpr const char* kNames[] = {"sum", "mean", "max", "min", "product"};
    return kNames[static_cast<int>(op)];
}

void check_reducible(const char* where, DType dtype, ReduceOp op) {
    if (!is_compute(dtype))
        throw DTypeError(str(where, ": ", dtype,
                             " is a storage dtype; convert the tensor to a compute dtype first"));
    if (op == ReduceOp::mean && !is_floating(dtype))
        throw DTypeError(str(where, ": mean needs a floating dtype: ", dtype));
    if (dtype == boolean && op != ReduceOp::max && op != ReduceOp::min)
        throw DTypeError(
            str(where, ": bool supports only max (any) and min (all): ", name_of(op), " of bool"));
}

}  // namespace axle::dist
