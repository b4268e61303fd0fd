#include "nn/layers/parametrize/orthogonal.h"

#include "core/autograd/autograd.h"
#include "core/linalg.h"
#include "core/ops.h"

namespace axle::nn::parametrize {
namespace {

Tensor swapped(const Tensor& x) { return transpose(x, -2, -1); }

Tensor identity_of(const Tensor& x) {
    return eye(x.size(-2), {.dtype = x.dtype(), .device = x.device()});
}

// Returns x [..., n, k] and additional columns: [..., n, n].
Tensor with_columns(const Tensor& x, const Tensor& columns) {
    return columns.size(-1) == 0 ? x : cat({x, columns}, -1);
}

Shape shape_of_columns(const Tensor& x, std::int64_t columns) {
    Shape shape = x.shape();
    shape[shape.size() - 1] = columns;
    return shape;
}

// Returns Q of x = Q R with a positive diagonal of R. Q is uniformly distributed if x is normally
// distributed (Mezzadri, arXiv:math-ph/0609050).
Tensor orthogonalized(const Tensor& x) {
    const auto [q, r] = linalg::qr(x);
    return mul(q, unsqueeze(sign(diagonal(r, 0, -2, -1)), -2));
}

bool is_orthogonal(const Tensor& q) {
    const Tensor error = abs(sub(matmul(swapped(q), q), identity_of(q)));
    const double epsilon = q.dtype() == f64 ? 0x1p-52 : 0x1p-23;
    return max(error).item() <= 10 * static_cast<double>(q.size(-2)) * epsilon;
}

}  // namespace

Tensor OrthogonalWeight::start(const Tensor& weight, const OrthogonalOptions& options) {
    if (weight.dim() < 2)
        throw ShapeError(
            str("Orthogonal: the weight must have at least 2 dimensions: it is ", weight.shape()));
    const NoGrad no_grad;
    const bool is_square = weight.size(-1) == weight.size(-2);
    map = options.orthogonal_map.value_or(is_square ? OrthogonalMap::matrix_exp
                                                    : OrthogonalMap::householder);
    const bool is_wide = weight.size(-2) < weight.size(-1);
    const Tensor q = is_wide ? swapped(weight.detach()) : weight.detach();
    const std::int64_t n = q.size(-2), k = q.size(-1);
    const TensorOptions like{.dtype = weight.dtype(), .device = weight.device()};
    if (options.use_trivialization) {
        if (n != k)
            base = orthogonalized(with_columns(q, randn(shape_of_columns(q, n - k), like)));
        else
            base = is_orthogonal(q) ? clone(q) : orthogonalized(q);
        // With this parameter, all maps return the identity; the map householder needs the factor
        // -1.
        return mul(expand(eye(weight.size(-2), weight.size(-1), like), weight.shape()), -1);
    }
    if (map != OrthogonalMap::householder) return weight;
    // The diagonal has the signs of the diagonal of R. A factor of 0 means no reflection, so the
    // sign is reversed.
    const auto [reflectors, factors] = linalg::geqrf(q);
    const Tensor own = sign(diagonal(reflectors, 0, -2, -1));
    const Tensor signs = where(eq(factors, 0), neg(own), own);
    const Tensor x = where(eq(eye(n, k, like), 1), unsqueeze(signs, -2), reflectors);
    return is_wide ? swapped(x) : x;
}

Tensor OrthogonalWeight::weight_of(const Tensor& original) const {
    const bool is_wide = original.size(-2) < original.size(-1);
    const Tensor x = is_wide ? swapped(original) : original;
    const std::int64_t n = x.size(-2), k = x.size(-1);
    Tensor q;
    if (map == OrthogonalMap::householder) {
        const Tensor reflectors = tril(x, -1);
        const Tensor tau = div(2, add(sum(square(reflectors), -2), 1));
        const Tensor signs = trunc(diagonal(x, 0, -2, -1).detach());
        q = mul(linalg::householder_product(reflectors, tau), unsqueeze(signs, -2));
    } else {
        const Tensor lower = tril(x);
        const Tensor square_matrix =
            n == k ? lower
                   : cat({lower, zeros(shape_of_columns(x, n - k),
                                       {.dtype = x.dtype(), .device = x.device()})},
                         -1);
        const Tensor a = sub(square_matrix, swapped(square_matrix));
        const Tensor identity = identity_of(x);
        q = map == OrthogonalMap::matrix_exp
                ? linalg::matrix_exp(a)
                : linalg::solve(sub(identity, mul(a, 0.5)), add(identity, mul(a, 0.5)));
        q = narrow(q, -1, 0, k);
    }
    if (base.defined()) q = matmul(base, q);
    return is_wide ? swapped(q) : q;
}

}  // namespace axle::nn::parametrize
