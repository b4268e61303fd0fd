// Products of vectors and matrices with fixed numbers of dimensions, and products of several
// matrices.
#include <limits>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/products/operands.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Throws ShapeError unless a and b have these numbers of dimensions.
void check_dims(const char* op, const Tensor& a, int a_dims, const Tensor& b, int b_dims) {
    check_device(op, {&a, &b});
    if (a.dim() != a_dims || b.dim() != b_dims)
        throw ShapeError(str(op, ": a must have ", a_dims,
                             a_dims == 1 ? " dimension" : " dimensions", " and b ", b_dims,
                             ": a is ", a.shape(), ", b is ", b.shape()));
}

// Returns matmul(a, b) after checks whose messages name the op.
Tensor product_of(const char* op, const Tensor& a, int a_dims, const Tensor& b, int b_dims) {
    check_dims(op, a, a_dims, b, b_dims);
    check_factors(op, autocast(a), autocast(b));
    const bool fits =
        a.size(-1) == b.size(b_dims == 1 ? 0 : -2) && (a_dims < 3 || a.shape()[0] == b.shape()[0]);
    if (!fits)
        throw ShapeError(str(op, ": inner dimensions ", a_dims < 3 ? "" : "or batch sizes ",
                             "differ: a is ", a.shape(), ", b is ", b.shape()));
    return matmul(a, b);
}

// Returns beta * x + alpha * product. x has no gradient if beta is 0. Throws DeviceError,
// DTypeError or ShapeError for operands or factors that do not fit.
Tensor scaled_sum(const char* op, const Tensor& input, const Tensor& product, Scalar beta,
                  Scalar alpha) {
    check_device(op, {&input, &product});
    const Tensor x = autocast(input);
    check_same_dtype(op, x, product, "x", "the product");
    if (is_integral(x.dtype()) && !(beta.is_integral() && alpha.is_integral()))
        throw DTypeError(str(op, ": alpha and beta must be integers for ", x.dtype(), ": alpha is ",
                             alpha.to_double(), ", beta is ", beta.to_double()));
    if (broadcast_shapes(op, x.shape(), product.shape()) != product.shape())
        throw ShapeError(str(op, ": x cannot be broadcast to the product: x ", x.shape(),
                             ", product ", product.shape()));
    const Tensor scaled = alpha.to_double() == 1 ? product : mul(product, alpha);
    if (beta.to_double() == 0) return scaled;
    return add(beta.to_double() == 1 ? x : mul(x, beta), scaled);
}

}  // namespace

Tensor bmm(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("bmm");
    return product_of("bmm", a, 3, b, 3);
}
Tensor mm(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("mm");
    return product_of("mm", a, 2, b, 2);
}
Tensor mv(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("mv");
    return product_of("mv", a, 2, b, 1);
}
Tensor dot(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("dot");
    check_dims("dot", a, 1, b, 1);
    const auto [left, right] = widest_under_autocast(a, b);
    const AutocastGuard off(std::nullopt);
    return product_of("dot", left, 1, right, 1);
}
Tensor outer(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("outer");
    check_dims("outer", a, 1, b, 1);
    return mul(unsqueeze(a, 1), b);
}

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
    const profiler::OpScope scope("addmm");
    check_device("addmm", {&x, &a, &b});
    return scaled_sum("addmm", x, product_of("addmm", a, 2, b, 2), beta, alpha);
}
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
    const profiler::OpScope scope("addmv");
    check_device("addmv", {&x, &a, &b});
    return scaled_sum("addmv", x, product_of("addmv", a, 2, b, 1), beta, alpha);
}
Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
    const profiler::OpScope scope("addr");
    check_device("addr", {&x, &a, &b});
    check_dims("addr", a, 1, b, 1);
    return scaled_sum("addr", x, mul(unsqueeze(autocast(a), 1), autocast(b)), beta, alpha);
}
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
    const profiler::OpScope scope("baddbmm");
    check_device("baddbmm", {&x, &a, &b});
    return scaled_sum("baddbmm", x, product_of("baddbmm", a, 3, b, 3), beta, alpha);
}
// The sum over the batch is one product with longer rows: [n, batch * k] [batch * k, m].
Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
    const profiler::OpScope scope("addbmm");
    check_device("addbmm", {&x, &a, &b});
    check_dims("addbmm", a, 3, b, 3);
    if (a.size(0) != b.size(0) || a.size(2) != b.size(1))
        throw ShapeError(str("addbmm: inner dimensions or batch sizes differ: a is ", a.shape(),
                             ", b is ", b.shape()));
    const std::int64_t inner = a.size(0) * a.size(2);
    const Tensor rows = reshape(transpose(a, 0, 1), {a.size(1), inner});
    const Tensor columns = reshape(b, {inner, b.size(2)});
    return scaled_sum("addbmm", x, product_of("addbmm", rows, 2, columns, 2), beta, alpha);
}

namespace {

// The cheapest order of the products operands[i] ... operands[j]: `cost` counts multiplications,
// and `split` is the last operand of the left factor.
struct ChainOrder {
    std::vector<std::vector<double>> cost;
    std::vector<std::vector<std::size_t>> split;
};

ChainOrder cheapest_order(const std::vector<Tensor>& operands) {
    const std::size_t n = operands.size();
    std::vector<double> size;
    size.push_back(static_cast<double>(operands[0].size(0)));
    for (const Tensor& t : operands) size.push_back(static_cast<double>(t.size(1)));
    ChainOrder order{std::vector(n, std::vector<double>(n)),
                     std::vector(n, std::vector<std::size_t>(n))};
    for (std::size_t length = 1; length < n; ++length)
        for (std::size_t i = 0; i + length < n; ++i) {
            const std::size_t j = i + length;
            order.cost[i][j] = std::numeric_limits<double>::infinity();
            for (std::size_t k = i; k < j; ++k) {
                const double cost =
                    order.cost[i][k] + order.cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1];
                if (cost < order.cost[i][j]) order.cost[i][j] = cost, order.split[i][j] = k;
            }
        }
    return order;
}

Tensor chain_product(const ChainOrder& order, const std::vector<Tensor>& operands, std::size_t i,
                     std::size_t j) {
    if (i == j) return operands[i];
    const std::size_t k = order.split[i][j];
    return matmul(chain_product(order, operands, i, k), chain_product(order, operands, k + 1, j));
}

// Returns the product of matrices after checks whose messages name the op.
Tensor product_of_chain(const char* op, const std::vector<Tensor>& operands) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
        check_device(op, {&operands[0], &operands[i]});
        if (operands[i].dim() != 2)
            throw ShapeError(str(op, ": operand ", i, " must be a matrix: ", operands[i].shape()));
        if (i == 0) continue;
        check_factors(op, autocast(operands[i - 1]), autocast(operands[i]),
                      str("operand ", i - 1).c_str(), str("operand ", i).c_str());
        if (operands[i - 1].size(1) != operands[i].size(0))
            throw ShapeError(str(op, ": the inner dimensions of operands ", i - 1, " and ", i,
                                 " differ: ", operands[i - 1].shape(), ", ", operands[i].shape()));
    }
    return chain_product(cheapest_order(operands), operands, 0, operands.size() - 1);
}

}  // namespace

Tensor multi_dot(const std::vector<Tensor>& operands) {
    const profiler::OpScope scope("multi_dot");
    if (operands.size() < 2)
        throw ValueError(str("multi_dot: needs at least 2 operands: ", operands.size()));
    for (const Tensor& t : operands) check_device("multi_dot", {&t});
    std::vector<Tensor> matrices = operands;
    const bool from_vector = matrices.front().dim() == 1, to_vector = matrices.back().dim() == 1;
    if (from_vector) matrices.front() = unsqueeze(matrices.front(), 0);
    if (to_vector) matrices.back() = unsqueeze(matrices.back(), 1);
    const Tensor y = product_of_chain("multi_dot", matrices);
    Shape shape;
    if (!from_vector) shape.push_back(y.size(0));
    if (!to_vector) shape.push_back(y.size(1));
    return reshape(y, shape);
}

Tensor chain_matmul(const std::vector<Tensor>& operands) {
    const profiler::OpScope scope("chain_matmul");
    if (operands.empty())
        throw ValueError("chain_matmul: needs at least 1 operand: the list is empty");
    return product_of_chain("chain_matmul", operands);
}

}  // namespace axle
