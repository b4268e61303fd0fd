// Orthogonal decompositions. The gradient of qr() is from Walter and Lehmann, 2010
// (arXiv:1001.1654). The gradients of svd() and eigh() are from Giles, 2008, "Collected Matrix
// Derivative Results for Forward and Reverse Mode Algorithmic Differentiation".
#include "core/ops/linalg/matrices.h"

namespace axle::linalg {
namespace {

[[noreturn]] void throw_no_convergence(const char* op, const Tensor& x, const HostError& error) {
    throw LinAlgError(
        str(error_prefix(op, x, error),
            "the algorithm does not converge: an element is not finite, or the matrix "
            "is ill-conditioned: the shape is ",
            x.shape()));
}

// Returns a + b, or b if a is undefined.
Tensor sum_of(const Tensor& a, const Tensor& b) { return a.defined() ? add(a, b) : b; }

// Returns the gradient of x [..., m, n] = Q R for a square R [..., n, n].
Tensor qr_gradient(const char* op, const Tensor& q, const Tensor& r, const Tensor& dq,
                   const Tensor& dr) {
    Tensor m;
    if (dr.defined()) m = matmul(r, transposed(dr));
    if (dq.defined()) m = sum_of(m, neg(matmul(transposed(dq), q)));
    const Tensor lower = tril(m, -1);
    const Tensor symmetric =
        add(add(lower, transposed(lower)), diag_embed(axle::diagonal(m, 0, -2, -1)));
    const Tensor y = sum_of(dq, matmul(q, symmetric));
    // Solves dx R^T = y.
    return transposed(triangular_solution_of(op, r, transposed(y), true, false));
}

Grads qr_rule(const char* op, const Tensor& q, const Tensor& r, const Grads& dy) {
    const std::int64_t m = q.size(-2), n = r.size(-1);
    if (!dy[0].defined() && !dy[1].defined()) return {Tensor()};
    if (m >= n) return {qr_gradient(op, q, r, dy[0], dy[1])};
    // x = [X, Y] and R = [U, V], where X = Q U is square and Y = Q V.
    const Tensor u = narrow(r, -1, 0, m), v = narrow(r, -1, m, n - m);
    if (!dy[1].defined()) return {cat({qr_gradient(op, q, u, dy[0], {}), zeros_like(v)}, -1)};
    const Tensor du = narrow(dy[1], -1, 0, m), dv = narrow(dy[1], -1, m, n - m);
    const Tensor dq = sum_of(dy[0], matmul(matmul(q, v), transposed(dv)));
    return {cat({qr_gradient(op, q, u, dq, du), matmul(q, dv)}, -1)};
}

// Returns the differences values[j] - values[i], and ones on the diagonal.
Tensor differences_of(const Tensor& values) {
    return add(sub(unsqueeze(values, -2), unsqueeze(values, -1)),
               identity_like(values, values.size(-1)));
}

Tensor svd_gradient(const Tensor& u, const Tensor& s, const Tensor& vh, const Tensor& du,
                    const Tensor& ds, const Tensor& dvh) {
    const std::int64_t m = u.size(-2), n = vh.size(-1), k = s.size(-1);
    const Tensor row = unsqueeze(s, -2), column = unsqueeze(s, -1);
    Tensor core, left, right, outside;
    if (ds.defined()) core = diag_embed(ds);
    if (du.defined() || dvh.defined()) {
        const Tensor gaps = differences_of(mul(s, s));
        if (du.defined()) {
            left = matmul(transposed(u), du);
            core = sum_of(core, mul(div(sub(left, transposed(left)), gaps), row));
        }
        if (dvh.defined()) {
            right = matmul(dvh, transposed(vh));  // the transpose of V^T dV
            core = sum_of(core, mul(column, div(sub(transposed(right), right), gaps)));
        }
    }
    Tensor dx = matmul(matmul(u, core), vh);
    // Adds the gradients of the parts that are orthogonal to the columns of U and V.
    if (du.defined() && m > k) dx = add(dx, matmul(div(sub(du, matmul(u, left)), row), vh));
    if (dvh.defined() && n > k) dx = add(dx, matmul(u, div(sub(dvh, matmul(right, vh)), column)));
    return dx;
}

// Computes the singular values and, if `vectors` is true, U and Vh.
Svd svd_values(const char* op, const Tensor& x, bool vectors, bool full) {
    const std::int64_t m = x.size(-2), n = x.size(-1), k = std::min(m, n);
    const std::int64_t left = full ? m : k, right = full ? n : k;
    const Shape batch = batch_shape(x);
    Svd y = {{}, host_result(x, with_sizes(batch, {k})), {}};
    if (vectors) {
        y.U = host_result(x, with_sizes(batch, {m, left}));
        y.Vh = host_result(x, with_sizes(batch, {right, n}));
    }
    if (x.device().is_meta()) return y;
    if (k == 0) {
        // Full matrices of an empty matrix are identities.
        if (vectors) {
            y.U.copy_(eye(m, left, {f64}));
            y.Vh.copy_(eye(right, n, {f64}));
        }
    } else {
        const Tensor from = host_matrices(x);
        const double* const a = from.data<double>();
        double *const s = y.S.data<double>(), *const u = vectors ? y.U.data<double>() : nullptr,
                      *const vh = vectors ? y.Vh.data<double>() : nullptr;
        const HostError error = for_each_matrix(x, 20 * m * n * k, [&](std::int64_t i) {
            const bool is_done =
                host::svd(m, n, a + i * m * n, full, vectors ? u + i * m * left : nullptr,
                          s + i * k, vectors ? vh + i * right * n : nullptr);
            return is_done ? 0 : 1;
        });
        if (error.matrix >= 0) throw_no_convergence(op, x, error);
    }
    y.S = to(y.S, x.device());
    if (vectors) y.U = to(y.U, x.device()), y.Vh = to(y.Vh, x.device());
    return y;
}

std::pair<Tensor, Tensor> eigh_values(const char* op, const Tensor& x, bool upper, bool vectors) {
    const std::int64_t n = x.size(-1);
    Tensor values = host_result(x, with_sizes(batch_shape(x), {n})), v;
    if (vectors) v = host_result(x, x.shape());
    if (x.device().is_meta()) return {values, v};
    const Tensor from = host_matrices(x);
    const double* const a = from.data<double>();
    double *const l = values.data<double>(), *const columns = vectors ? v.data<double>() : nullptr;
    if (n > 0) {
        const HostError error = for_each_matrix(x, 10 * n * n * n, [&](std::int64_t i) {
            const bool is_done = host::eigh(n, a + i * n * n, upper, l + i * n,
                                            vectors ? columns + i * n * n : nullptr);
            return is_done ? 0 : 1;
        });
        if (error.matrix >= 0) throw_no_convergence(op, x, error);
    }
    return {to(values, x.device()), vectors ? to(v, x.device()) : v};
}

bool needs_gradient(const Tensor& x) { return grad_enabled() && x.requires_grad(); }

}  // namespace

Svd svd_of(const char* op, const Tensor& x, bool full) {
    Svd y = svd_values(op, x, true, full);
    record_outputs(
        op, {&y.U, &y.S, &y.Vh}, {x},
        [u = saved(y.U), s = saved(y.S), vh = saved(y.Vh)](const Grads& dy, Needs) -> Grads {
            const Tensor values = s;
            const std::int64_t k = values.size(-1);
            const auto part = [k](const Tensor& t, int dim) {
                return t.defined() ? narrow(t, dim, 0, k) : t;
            };
            if (!dy[0].defined() && !dy[1].defined() && !dy[2].defined()) return {Tensor()};
            return {svd_gradient(part(u, -1), values, part(vh, -2), part(dy[0], -1), dy[1],
                                 part(dy[2], -2))};
        });
    return y;
}

Tensor singular_values_of(const char* op, const Tensor& x) {
    return needs_gradient(x) ? svd_of(op, x, false).S : svd_values(op, x, false, false).S;
}

std::pair<Tensor, Tensor> eigenvectors_of(const char* op, const Tensor& x, bool upper) {
    auto [values, vectors] = eigh_values(op, x, upper, true);
    Tensor l = values, v = vectors;
    record_outputs(op, {&l, &v}, {x},
                   [l = saved(l), v = saved(v)](const Grads& dy, Needs) -> Grads {
                       const Tensor columns = v;
                       Tensor core;
                       if (dy[0].defined()) core = diag_embed(dy[0]);
                       if (dy[1].defined()) {
                           const Tensor product = matmul(transposed(columns), dy[1]);
                           const Tensor own = diag_embed(axle::diagonal(product, 0, -2, -1));
                           core = sum_of(core, div(sub(product, own), differences_of(l)));
                       }
                       if (!core.defined()) return {Tensor()};
                       return {matmul(matmul(columns, core), transposed(columns))};
                   });
    return {l, v};
}

Tensor eigenvalues_of(const char* op, const Tensor& x, bool upper) {
    return needs_gradient(x) ? eigenvectors_of(op, x, upper).first
                             : eigh_values(op, x, upper, false).first;
}

std::pair<Tensor, Tensor> qr(const Tensor& input, QrMode mode) {
    const profiler::OpScope scope("qr");
    const Tensor x = matrices("qr", input);
    const std::int64_t m = x.size(-2), n = x.size(-1);
    const bool complete = mode == QrMode::complete, needs_q = mode != QrMode::r;
    const std::int64_t k = complete ? m : std::min(m, n);
    const Shape batch = batch_shape(x);
    Tensor q = host_result(x, needs_q ? with_sizes(batch, {m, k}) : Shape{0});
    Tensor r = host_result(x, with_sizes(batch, {k, n}));
    if (!x.device().is_meta()) {
        if (m > 0 && n > 0) {
            const Tensor from = host_matrices(x);
            const double* const a = from.data<double>();
            double *const left = q.data<double>(), *const right = r.data<double>();
            for_each_matrix(x, m * n * k, [&](std::int64_t i) {
                host::qr(m, n, a + i * m * n, complete, needs_q ? left + i * m * k : nullptr,
                         right + i * k * n);
                return 0;
            });
        } else if (needs_q) {
            q.copy_(eye(m, k, {f64}));
        }
        q = to(q, x.device()), r = to(r, x.device());
    }
    const char* const refused = mode == QrMode::r   ? "in the mode r"
                                : complete && m > n ? "in the mode complete if m is above n"
                                                    : nullptr;
    record_outputs(
        "qr", {&q, &r}, {x},
        [q = saved(q), r = saved(r), refused, shape = x.shape()](const Grads& dy, Needs) -> Grads {
            if (refused != nullptr)
                throw UsageError(str("qr: has no gradient ", refused, ": x is ", shape,
                                     "; use the mode reduced"));
            return qr_rule("qr", q, r, dy);
        });
    const DType dtype = result_dtype(input);
    return {to(q, dtype), to(r, dtype)};
}

Tensor householder_product(const Tensor& x, const Tensor& tau) {
    const profiler::OpScope scope("householder_product");
    check_device("householder_product", {&x, &tau});
    const Tensor a = matrices("householder_product", x);
    check_same_dtype("householder_product", x, tau, "x", "tau");
    const std::int64_t m = x.size(-2), n = x.size(-1);
    const Shape batch = batch_shape(x);
    if (tau.dim() != x.dim() - 1 || with_sizes(batch, {tau.size(-1)}) != tau.shape() ||
        tau.size(-1) > n || n > m)
        throw ShapeError(
            str("householder_product: x must be [..., m, n] and tau [..., k] with k <= n <= m: x ",
                x.shape(), ", tau ", tau.shape()));
    const Tensor factors = unsqueeze(to(tau, f64), -1);
    const Tensor columns = eye(m, n, {.dtype = f64, .device = x.device()});
    const Tensor unit = add(tril(a, -1), columns);
    Tensor y = expand(columns, x.shape());
    for (std::int64_t i = tau.size(-1); i-- > 0;) {
        const Tensor v = narrow(unit, -1, i, 1);
        y = sub(y, matmul(mul(v, narrow(factors, -2, i, 1)), matmul(transposed(v), y)));
    }
    return to(contiguous(y), result_dtype(x));
}

std::pair<Tensor, Tensor> geqrf(const Tensor& x) {
    const profiler::OpScope scope("geqrf");
    const NoGrad no_grad;
    const Tensor a = matrices("geqrf", x);
    const std::int64_t m = x.size(-2), n = x.size(-1), k = std::min(m, n);
    Tensor y, tau = host_result(x, with_sizes(batch_shape(x), {k}));
    if (x.device().is_meta()) {
        y = empty_like(a);
    } else {
        y = host_copy(a);
        double *const data = y.data<double>(), *const factors = tau.data<double>();
        if (k > 0)
            for_each_matrix(x, m * n * k, [&](std::int64_t i) {
                host::reflectors(m, n, data + i * m * n, factors + i * k);
                return 0;
            });
        y = to(y, x.device()), tau = to(tau, x.device());
    }
    return {to(y, result_dtype(x)), to(tau, result_dtype(x))};
}

Svd svd(const Tensor& x, bool full_matrices) {
    const profiler::OpScope scope("svd");
    const Svd y = svd_of("svd", matrices("svd", x), full_matrices);
    const DType dtype = result_dtype(x);
    return {to(y.U, dtype), to(y.S, dtype), to(y.Vh, dtype)};
}
Tensor svdvals(const Tensor& x) {
    const profiler::OpScope scope("svdvals");
    return to(singular_values_of("svdvals", matrices("svdvals", x)), result_dtype(x));
}

std::pair<Tensor, Tensor> eigh(const Tensor& x, bool upper) {
    const profiler::OpScope scope("eigh");
    const auto [values, vectors] = eigenvectors_of("eigh", square_matrices("eigh", x), upper);
    return {to(values, result_dtype(x)), to(vectors, result_dtype(x))};
}
Tensor eigvalsh(const Tensor& x, bool upper) {
    const profiler::OpScope scope("eigvalsh");
    return to(eigenvalues_of("eigvalsh", square_matrices("eigvalsh", x), upper), result_dtype(x));
}

}  // namespace axle::linalg
