// The initializers eye_, dirac_, orthogonal_ and sparse_.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "nn/init.h"

namespace axle::nn::init {
namespace {

void check_matrix(const char* op, const Tensor& t) {
    check_device(op, {&t});
    if (t.dim() != 2)
        throw ShapeError(str(op, ": the tensor must have two dimensions: it is ", t.shape()));
}

using Column = std::vector<double>;

double dot(const Column& a, const Column& b, std::size_t from) {
    double sum = 0;
    for (std::size_t i = from; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Subtracts 2 v (v^T x) from x. The first `from` elements of v must be zero.
void reflect(const Column& v, Column& x, std::size_t from) {
    const double factor = 2 * dot(v, x, from);
    for (std::size_t i = from; i < x.size(); ++i) x[i] -= factor * v[i];
}

// Replaces the columns of a matrix by the columns of Q of its QR decomposition with a positive
// diagonal of R. The matrix must have at least as many rows as columns. Q is uniformly distributed
// if the elements of the matrix are normally distributed.
void orthogonalize(std::vector<Column>& columns) {
    const std::size_t n = columns.size();
    std::vector<Column> reflectors;
    std::vector<double> signs;
    for (std::size_t k = 0; k < n; ++k) {
        Column v = columns[k];
        std::fill_n(v.begin(), k, 0.0);
        const double norm = std::sqrt(dot(v, v, k));
        // The reflection maps v to -sign(v_k) |v| e_k, which avoids cancellation.
        const double sign = v[k] < 0 ? -1 : 1;
        v[k] += sign * norm;
        const double length = std::sqrt(dot(v, v, k));
        if (length > 0)
            for (double& x : v) x /= length;
        for (std::size_t j = k + 1; j < n; ++j) reflect(v, columns[j], k);
        reflectors.push_back(std::move(v));
        signs.push_back(-sign);
    }
    for (std::size_t j = 0; j < n; ++j) {
        std::fill(columns[j].begin(), columns[j].end(), 0.0);
        columns[j][j] = signs[j];
        // The reflections after the j-th do not change column j of the identity.
        for (std::size_t k = j + 1; k-- > 0;) reflect(reflectors[k], columns[j], k);
    }
}

}  // namespace

void eye_(Tensor& t) {
    check_matrix("eye_", t);
    if (t.device().is_meta()) return;
    const NoGrad no_grad;
    zeros_(t);
    for (std::int64_t i = 0; i < std::min(t.size(0), t.size(1)); ++i) t[i][i].fill_(1);
}

void dirac_(Tensor& t, std::int64_t groups) {
    check_device("dirac_", {&t});
    if (t.dim() < 3 || t.dim() > 5)
        throw ShapeError(
            str("dirac_: the tensor must have three, four or five dimensions: it is ", t.shape()));
    if (groups < 1 || t.size(0) % groups != 0)
        throw ValueError(str("dirac_: groups must be positive and divide the first size: groups ",
                             groups, ", shape ", t.shape()));
    if (t.numel() == 0 || t.device().is_meta()) return;
    const NoGrad no_grad;
    zeros_(t);
    const std::int64_t outputs = t.size(0) / groups;
    for (std::int64_t row = 0; row < t.size(0); ++row) {
        if (row % outputs >= t.size(1)) continue;
        Tensor element = t[row][row % outputs];
        while (element.dim() > 0) element = element[element.size(0) / 2];
        element.fill_(1);
    }
}

void orthogonal_(Tensor& t, double gain) {
    check_device("orthogonal_", {&t});
    if (t.dim() < 2)
        throw ShapeError(
            str("orthogonal_: the tensor must have at least two dimensions: it is ", t.shape()));
    if (t.numel() == 0 || t.device().is_meta()) return;
    const NoGrad no_grad;
    const std::int64_t rows = t.size(0), width = t.numel() / rows;
    const bool wide = width > rows;
    const std::int64_t height = wide ? width : rows, count = wide ? rows : width;
    Tensor random = empty({count, height}, {f64});
    const double* const source = random.normal_().data<double>();
    std::vector<Column> columns;
    for (std::int64_t j = 0; j < count; ++j)
        columns.emplace_back(source + j * height, source + (j + 1) * height);
    orthogonalize(columns);
    auto* to = random.data<double>();
    for (const Column& column : columns)
        for (const double value : column) *to++ = gain * value;
    t.copy_((wide ? random : random.t()).reshape(t.shape()).to(t.device()));
}

void sparse_(Tensor& t, double sparsity, double std) {
    check_matrix("sparse_", t);
    if (!(sparsity >= 0 && sparsity <= 1))
        throw ValueError(str("sparse_: sparsity must be in [0, 1]: ", sparsity));
    if (!(std >= 0)) throw ValueError(str("sparse_: std must be at least 0: ", std));
    if (t.numel() == 0 || t.device().is_meta()) return;
    const NoGrad no_grad;
    const auto zeros_per_column = std::ceil(sparsity * static_cast<double>(t.size(0)));
    Tensor values = empty(t.shape());
    values.normal_(0, std);
    const Tensor rank = argsort(argsort(rand(t.shape()), 0), 0);  // a permutation of the rows
    t.copy_(masked_fill(values, lt(rank, zeros_per_column), 0).to(t.device()));
}

}  // namespace axle::nn::init
