// The indices of Tensor::index and Tensor::index_put_, with the meaning of x[...] in PyTorch.
//
//     x.index({0});                           // x[0]
//     x.index({Slice(1, 3), Ellipsis, 2});    // x[1:3, ..., 2]
//     x.index({None, Slice(None, None, 2)});  // x[None, ::2]
//     x.index({rows, columns});               // index tensors (i64 or i32)
//     x.index({{0, 2}});                      // x[[0, 2]]
//     x.index({x > 0});                       // a boolean mask
//     x.index_put_({x > 0}, 0);
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "core/tensor.h"

namespace axle {

// As an index, None inserts a dimension of size 1. As a bound of a Slice, None means "not set".
inline constexpr std::nullopt_t None = std::nullopt;

// Ellipsis stands for all dimensions that the other indices do not use. A list of indices can
// contain it at most once.
struct EllipsisIndex {};
inline constexpr EllipsisIndex Ellipsis;

// Every step-th element of [start, stop). Negative bounds count from the end, and bounds are
// clamped. The step must be positive; otherwise index() and index_put_() throw ValueError.
struct Slice {
    explicit Slice(std::optional<std::int64_t> start_ = {}, std::optional<std::int64_t> stop_ = {},
                   std::optional<std::int64_t> step_ = {})
        : start(start_.value_or(0)), stop(stop_.value_or(INT64_MAX)), step(step_.value_or(1)) {}
    std::int64_t start, stop, step;
};

// One index of a list:
//
// | index | meaning |
// |---|---|
// | integer | selects one element and removes the dimension; negative: counted from the end |
// | Slice | a part of the dimension |
// | None | inserts a dimension of size 1 |
// | i64 or i32 tensor | selects elements; several of them broadcast to one shape |
// | bool tensor | the positions of true in row-major order, in as many dimensions as it has |
//
// The dimensions of index tensors replace the dimensions that they index, or are first if the
// indexed dimensions are not adjacent. If all indices are integers, slices, None or Ellipsis, the
// result is a view; otherwise it is a copy. Index tensors are on the device of x or on the CPU. If
// x is on a GPU, a bool tensor makes the call wait, because the shape of the result depends
// on its values; if x is on the meta device, a bool tensor throws DeviceError. Indices out of
// range, too many indices, a second Ellipsis, and a mask that is 0-d or has another shape throw
// IndexError; on a GPU, values of index tensors are reported errors, which the next call that waits
// throws.
class TensorIndex {
  public:
    enum class Kind : std::uint8_t { integer, slice, none, ellipsis, tensor };

    template <std::integral T>
        requires(!std::same_as<T, bool>)
    TensorIndex(T index)  // NOLINT(google-explicit-constructor)
        : kind(Kind::integer), integer(static_cast<std::int64_t>(index)) {}
    TensorIndex(Slice part) : kind(Kind::slice), slice(part) {}      // NOLINT
    TensorIndex(std::nullopt_t) : kind(Kind::none) {}                // NOLINT
    TensorIndex(EllipsisIndex) : kind(Kind::ellipsis) {}             // NOLINT
    TensorIndex(const Tensor& t) : kind(Kind::tensor), tensor(t) {}  // NOLINT
    TensorIndex(std::initializer_list<std::int64_t> list);           // NOLINT: an index tensor

    Kind kind;
    std::int64_t integer = 0;
    Slice slice = Slice();
    Tensor tensor = {};
};

}  // namespace axle
