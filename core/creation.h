// Ops that create tensors and are not in core/ops.h: sequences, identity matrices, grids,
// combinations, indices and random numbers. core/ops.h includes this header and states the rules of
// all ops. Sizes must not be negative (ShapeError).
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace axle {

// --- sequences and matrices (creation/sequences.cpp)
// linspace returns `steps` equally spaced numbers from start to end (inclusive), or only start if
// steps is 1. logspace returns the powers of the base with these exponents. If the dtype is an
// integer, the bounds and the results are truncated. Throw ShapeError if steps is negative.
Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options = {});
Tensor logspace(double start, double end, std::int64_t steps, double base = 10,
                TensorOptions options = {});
// Return a matrix with ones on its main diagonal and zeros elsewhere: [n, n] or [n, m].
Tensor eye(std::int64_t n, TensorOptions options = {});
Tensor eye(std::int64_t n, std::int64_t m, TensorOptions options = {});

// --- grids and indices (creation/grids.cpp)
// The order of the dimensions of a grid: `ij` is the order of the tensors, and `xy` swaps the first
// two dimensions.
enum class GridIndexing : std::uint8_t { ij, xy };
// Returns views of 0-d and 1-d tensors that are expanded to the shape of their grid. Throws
// ValueError if the list is empty, and ShapeError for a tensor with more dimensions.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors,
                             GridIndexing indexing = GridIndexing::ij);
// Returns all tuples with an element of each 1-d tensor, [tuples, tensors]. The result for one
// tensor is this tensor. Throws ValueError if the list is empty, and ShapeError unless all tensors
// are 1-d.
Tensor cartesian_prod(const std::vector<Tensor>& tensors);
// Returns all combinations of r elements of x [n], [combinations, r], or [0] if r is 0. An element
// occurs at most once in a combination, unless with_replacement is true. Throws ShapeError unless x
// is 1-d, and ValueError if r is negative.
Tensor combinations(const Tensor& x, std::int64_t r = 2, bool with_replacement = false);
// Return the positions of the lower (upper) triangle of a matrix [rows, columns] in row-major
// order. The result [2, positions] contains the row indices and the column indices. See tril() for
// the diagonal. Throw DTypeError unless the dtype is i64 or i32.
Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t diagonal = 0,
                    TensorOptions options = {i64});
Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t diagonal = 0,
                    TensorOptions options = {i64});

// --- random, from the default generator (creation/random_like.cpp); without gradients. The numbers
// are the same on CPUs and GPUs, except for rounding errors in randn_like() and normal().

// Return the numbers of rand() and randn() in the shape and the floating dtype of x.
Tensor rand_like(const Tensor& x);
Tensor randn_like(const Tensor& x);
// Return integers in [low, high) in the dtype of x; the default of low is 0. See randint().
Tensor randint_like(const Tensor& x, std::int64_t high);
Tensor randint_like(const Tensor& x, std::int64_t low, std::int64_t high);
// Returns the numbers 0 to n - 1 in random order. Throws ValueError unless the dtype represents all
// of them exactly.
Tensor randperm(std::int64_t n, TensorOptions options = {i64});
// Return 1 with the probabilities p and otherwise 0, in the shape and floating dtype of the tensor
// p, or in the given shape and the dtype of the options. Throw ValueError for a number p, or on a
// CPU for an element of p, that is not in [0, 1].
Tensor bernoulli(const Tensor& p);
Tensor bernoulli(double p, const Shape& shape, TensorOptions options = {});
// Return normally distributed numbers. Tensors of means and standard deviations are floating and
// broadcast. Throw ValueError for a number std, or on a CPU for an element of std, that is
// negative.
Tensor normal(const Tensor& mean, const Tensor& std);
Tensor normal(const Tensor& mean, double std = 1);
Tensor normal(double mean, const Tensor& std);
Tensor normal(double mean, double std, const Shape& shape, TensorOptions options = {});

}  // namespace axle
