// Products of matrices and vectors under PyTorch's names, einsum(), distances, and normalize().
// core/ops.h includes this header and states the rules of all ops.
//
// Operands of matrix products must have one dtype other than bool (DTypeError). outer(), addr(),
// cross(), kron() and most distances promote dtypes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace axle {

// --- products of fixed shapes (products/products.cpp)
Tensor bmm(const Tensor& a, const Tensor& b);    // [batch, n, k] [batch, k, m] = [batch, n, m]
Tensor mm(const Tensor& a, const Tensor& b);     // [n, k] [k, m] = [n, m]
Tensor mv(const Tensor& a, const Tensor& b);     // [n, k] [k] = [n]
Tensor dot(const Tensor& a, const Tensor& b);    // [n] [n], a 0-d result
Tensor outer(const Tensor& a, const Tensor& b);  // [n] [m] = [n, m]
// Return beta * x + alpha * product. The product is the mm, mv, outer or bmm of a and b; in addbmm,
// it is the sum of the bmm over the batch. x is broadcast to the product. If beta is 0, the values
// of x are not used. Throw DTypeError unless x has the dtype of the product, and for a floating
// alpha or beta with integers.
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1,
               Scalar alpha = 1);
Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
// Returns the n-th matrix power of x [..., m, m] (linalg/functions.cpp). The result is the identity
// for n = 0, and the power of the inverse for a negative n. Throws ShapeError unless the matrices
// are square. If n is negative, throws DTypeError unless x is floating, and linalg::LinAlgError if
// a matrix is singular.
Tensor matrix_power(const Tensor& x, std::int64_t n);
// Return the product of matrices in the order that needs the fewest multiplications. The first and
// the last operand of multi_dot can be vectors. chain_matmul returns a single operand unchanged.
// Throw ValueError if chain_matmul gets no operand or multi_dot fewer than two.
Tensor multi_dot(const std::vector<Tensor>& operands);
Tensor chain_matmul(const std::vector<Tensor>& operands);

// --- products over chosen dimensions (products/tensordot.cpp)
// Returns the cross product of vectors along dim, which has size 3; by default the first dimension
// of size 3. a and b broadcast, except along dim. Throws ShapeError if a or b has another size
// there, or if no dimension has size 3.
Tensor cross(const Tensor& a, const Tensor& b, std::optional<std::int64_t> dim = {});
// Return the sums of products over pairs of dimensions: the last `dims` dimensions of a with the
// first `dims` dimensions of b, or dims_a with dims_b. The result has the other dimensions of a,
// then the other dimensions of b. Throw ShapeError if dims_a and dims_b differ in number, or if the
// sizes of a pair differ and neither is 1, and ValueError if `dims` is out of range or a dimension
// is listed twice.
Tensor tensordot(const Tensor& a, const Tensor& b, std::int64_t dims = 2);
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b);
// Returns the Kronecker product. a and b have at most kMaxDims / 2 dimensions (ShapeError).
Tensor kron(const Tensor& a, const Tensor& b);

// --- sums of products (products/einsum.cpp)
// Returns the sum of products that an equation such as "bij,bjk->bik" defines, with PyTorch's
// syntax. A letter names a dimension, and "..." stands for dimensions that broadcast. Letters that
// the output lacks are summed, and a letter that occurs twice in one operand selects a diagonal.
// Without "->", the output has "..." and then the letters that occur once, in alphabetical order
// (capitals first). The operands are multiplied from left to right. Throws ValueError for an
// invalid equation and for another number of operands, and ShapeError for an operand that does not
// match the equation. The messages name the equation and the operand.
Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands);

// --- distances and directions (products/distances.cpp). Throw DTypeError unless the operands are
// floating. The gradient of a distance of 0 is 0.
// Returns the p-norms of a[..., i, :] - b[..., j, :] as [..., n, m], for a [..., n, k] and b [...,
// m, k], whose batch dimensions broadcast. If p is 2 and n or m is above 25, uses a matrix product,
// as PyTorch does. This is faster but less accurate for close points. Otherwise, needs memory for
// the [..., n, m, k] differences. Throws DTypeError unless a and b have one dtype, and ValueError
// if p is negative.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);
// Returns the p-norm of a - b + eps along the last dimension. a and b broadcast.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
// Returns the sum of products along dim, divided by both 2-norms, which are at least eps. a and b
// broadcast.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, std::int64_t dim = 1, double eps = 1e-8);
// Returns x divided by its p-norm along dim, which is at least eps.
Tensor normalize(const Tensor& x, double p = 2, std::int64_t dim = 1, double eps = 1e-12);

}  // namespace axle
