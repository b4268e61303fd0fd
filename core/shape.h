// Dims, Shape and Strides: short integer vectors without heap memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "kernels/view.h"

namespace axle {

// Up to kMaxDims integers, such as a shape, strides or a list of dimensions.
class Dims {
  public:
    Dims() = default;
    // Converts one integer, so that sum(x, 1) and x.reshape(-1) need no braces.
    template <std::integral T>
        requires(!std::same_as<T, bool>)
    Dims(T value) : values_{static_cast<std::int64_t>(value)}, size_(1) {}  // NOLINT
    Dims(std::initializer_list<std::int64_t> values)
        : Dims(std::span(values.begin(), values.end())) {}
    // Copies the values. Throws ShapeError if there are more than kMaxDims of them.
    explicit Dims(std::span<const std::int64_t> values);

    int size() const { return size_; }
    bool empty() const { return size_ == 0; }
    std::int64_t operator[](int i) const { return values_[i]; }
    std::int64_t& operator[](int i) { return values_[i]; }
    // Returns the i-th value from the end: back(1) is the last value.
    std::int64_t back(int i = 1) const { return values_[size_ - i]; }
    const std::int64_t* begin() const { return values_; }
    const std::int64_t* end() const { return values_ + size_; }
    std::int64_t* begin() { return values_; }
    std::int64_t* end() { return values_ + size_; }

    // Append or insert a value; throw ShapeError if there are kMaxDims values already.
    void push_back(std::int64_t value);
    void insert(int at, std::int64_t value);
    void erase(int at);

    friend bool operator==(const Dims& a, const Dims& b) {
        if (a.size_ != b.size_) return false;
        for (int i = 0; i < a.size_; ++i)
            if (a.values_[i] != b.values_[i]) return false;
        return true;
    }

  private:
    std::int64_t values_[kMaxDims] = {};
    int size_ = 0;
};

// Prints a list such as "[2, 3]".
std::ostream& operator<<(std::ostream& out, const Dims& dims);

using Shape = Dims;
using Strides = Dims;

// Returns the product of the sizes. Throws ShapeError if a size is negative, or if the product of
// the sizes other than 0 exceeds int64.
std::int64_t numel(const Shape& shape);

// Returns the strides of a row-major tensor, in elements.
Strides contiguous_strides(const Shape& shape);

// Returns the shape to which a and b broadcast by NumPy's rule. Throws ShapeError, with the op's
// name and both shapes, if they do not broadcast.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

// Converts dim from [-ndim, ndim) to [0, ndim), as in Python. A 0-d tensor is treated as 1-d.
// Throws IndexError if dim is out of range.
int wrap_dim(const char* op, std::int64_t dim, int ndim);

}  // namespace axle
