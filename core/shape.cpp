#include "core/shape.h"

#include <algorithm>

#include "kernels/error.h"

namespace axle {
namespace {

[[noreturn]] void too_many_dims(int n) {
    throw ShapeError(str("shape: at most ", kMaxDims, " dimensions are supported, not ", n));
}

}  // namespace

Dims::Dims(std::span<const std::int64_t> values) {
    if (values.size() > static_cast<std::size_t>(kMaxDims))
        too_many_dims(static_cast<int>(values.size()));
    std::copy(values.begin(), values.end(), values_);
    size_ = static_cast<int>(values.size());
}

void Dims::push_back(std::int64_t value) { insert(size_, value); }

void Dims::insert(int at, std::int64_t value) {
    if (size_ == kMaxDims) too_many_dims(size_ + 1);
    for (int i = size_; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = value;
    ++size_;
}

void Dims::erase(int at) {
    for (int i = at; i + 1 < size_; ++i) values_[i] = values_[i + 1];
    --size_;
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
    out << '[';
    for (int i = 0; i < dims.size(); ++i) out << (i == 0 ? "" : ", ") << dims[i];
    return out << ']';
}

std::int64_t numel(const Shape& shape) {
    std::int64_t n = 1;
    bool overflow = false;
    bool zero = false;
    for (const std::int64_t size : shape) {
        if (size < 0) throw ShapeError(str("shape: sizes can't be negative: ", shape));
        zero |= size == 0;
        overflow |= size != 0 && __builtin_mul_overflow(n, size, &n);
    }
    if (overflow) throw ShapeError(str("shape: number of elements overflows int64: ", shape));
    return zero ? 0 : n;
}

Strides contiguous_strides(const Shape& shape) {
    Strides strides = shape;
    std::int64_t stride = 1;
    for (int d = shape.size() - 1; d >= 0; --d) {
        strides[d] = stride;
        stride *= std::max<std::int64_t>(shape[d], 1);
    }
    return strides;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
    if (a == b) return a;
    const Shape& longer = a.size() >= b.size() ? a : b;
    const Shape& shorter = a.size() >= b.size() ? b : a;
    Shape result = longer;
    for (int i = 1; i <= shorter.size(); ++i) {
        std::int64_t& size = result[result.size() - i];
        const std::int64_t other = shorter.back(i);
        if (size == other || other == 1) continue;
        if (size != 1) throw ShapeError(str(op, ": shapes cannot be broadcast: ", a, " and ", b));
        size = other;
    }
    return result;
}

int wrap_dim(const char* op, std::int64_t dim, int ndim) {
    const int range = std::max(ndim, 1);
    if (dim < -range || dim >= range)
        throw IndexError(
            str(op, ": the dimension must be in [", -range, ", ", range - 1, "]: ", dim));
    return static_cast<int>(dim < 0 ? dim + range : dim);
}

}  // namespace axle
