#include "nn/layers/parametrize/parametrize.h"

#include "core/autograd/autograd.h"

namespace axle::nn::parametrize {
namespace {

// Returns a weight as a matrix whose rows are the parts along dim.
Tensor matrix_of(const Tensor& weight, std::int64_t dim) {
    const Tensor first = dim == 0 ? weight : weight.transpose(0, dim);
    if (weight.dim() < 2) return first.reshape({first.numel(), 1});
    if (dim == 0) return first.flatten(1, -1);
    // Moves dim to the front without changing the order of the other dimensions.
    Dims order(dim);
    for (std::int64_t i = 0; i < weight.dim(); ++i)
        if (i != dim) order.push_back(i);
    return weight.permute(order).flatten(1, -1);
}

Tensor unit_vector(const Tensor& x, double eps) { return x / clamp(sqrt(sum(square(x))), eps, {}); }

}  // namespace

Tensor norm_except(const Tensor& x, std::int64_t dim) {
    if (dim == -1) return sqrt(sum(square(x)));
    Dims others;
    for (std::int64_t i = 0; i < x.dim(); ++i)
        if (i != dim) others.push_back(i);
    return others.empty() ? abs(x) : sqrt(sum(square(x), others, true));
}

Tensor parameter_of(const Tensor& x) { return clone(x.detach()).set_requires_grad(); }

void check_dim(const char* who, std::int64_t dim, const Tensor& weight) {
    if (dim < -1 || dim >= weight.dim())
        throw IndexError(str(who, ": the weight ", weight.shape(), " has no dimension ", dim));
}

void PowerIteration::start(const Tensor& weight) {
    const NoGrad no_grad;
    const Tensor matrix = matrix_of(weight, dim);
    const TensorOptions options{weight.dtype(), weight.device()};
    u = unit_vector(randn({matrix.size(0)}, options), eps);
    v = unit_vector(randn({matrix.size(1)}, options), eps);
    run(weight, 15);
}

void PowerIteration::run(const Tensor& weight, std::int64_t iterations) {
    const NoGrad no_grad;
    const Tensor matrix = matrix_of(weight.detach(), dim);
    Tensor next_u = u, next_v = v;
    for (std::int64_t i = 0; i < iterations; ++i) {
        next_u = unit_vector(matmul(matrix, next_v), eps);
        next_v = unit_vector(matmul(matrix.t(), next_u), eps);
    }
    // Replaces the values of the buffers, while graphs of earlier calls keep their values.
    u.set_data(next_u), v.set_data(next_v);
}

Tensor PowerIteration::normalized(const Tensor& weight) const {
    const Tensor matrix = matrix_of(weight, dim);
    const Tensor left = u.detach(), right = v.detach();
    return weight / sum(left * matmul(matrix, right));
}

}  // namespace axle::nn::parametrize
