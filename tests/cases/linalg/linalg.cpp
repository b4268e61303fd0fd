#include "core/linalg.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

constexpr double kInfiniteOrder = std::numeric_limits<double>::infinity();

// The ops themselves compute in f64. The expressions round sums and products of the operands to
// half precision, and the inverse amplifies these errors.
const Tolerances kRoundedOperands = {.f32 = 1e-5, .f16 = 2e-2, .bf16 = 1.5e-1};

OpCase& matrix_case(Cases& cases, const std::string& name, const std::string& torch,
                    std::vector<Row> rows, std::function<Outputs(In)> call) {
    cases.push_back({.name = name,
                     .torch = torch,
                     .call = std::move(call),
                     .rows = std::move(rows),
                     .twice = true,
                     .layout_bits = false,
                     .autocast = Autocast::f32,
                     .tolerance = kRoundedOperands});
    return cases.back();
}

// These functions compute the same values as the functions with the same names in
// tests/golden/references.py.
Tensor shifted(const Tensor& x, double shift = 4) {
    return add(x, mul(eye(x.size(-1), {.dtype = x.dtype(), .device = x.device()}), shift));
}
Tensor symmetric(const Tensor& x, double shift = 0) {
    return shifted(div(add(x, transpose(x, -2, -1)), 2), shift);
}

Input small(const Shape& shape) { return floats(shape, -1, 1); }
std::vector<Row> square_rows() {
    return {{small({3, 3})},
            {small({2, 4, 4})},
            {small({7, 7})},
            {small({0, 3, 3})},
            {small({2, 0, 0})}};
}
std::vector<Row> rectangular_rows() {
    return {{small({5, 3})},    {small({3, 5})}, {small({3, 3})},    {small({2, 4, 3})},
            {small({2, 3, 4})}, {small({7, 5})}, {small({0, 3, 4})}, {small({0, 3})}};
}

void linalg_equations(Cases& cases) {
    const auto pair = [](const Shape& a, const Shape& b) { return Row{small(a), floats(b)}; };
    const std::vector<Row> matrices = {pair({3, 3}, {3, 2}),       pair({2, 1, 4, 4}, {3, 4, 2}),
                                       pair({7, 7}, {7, 5}),       pair({4, 4}, {2, 4, 1}),
                                       pair({0, 3, 3}, {0, 3, 2}), pair({2, 0, 0}, {2, 0, 3})};
    const std::vector<Row> rows = {pair({3, 3}, {2, 3}), pair({2, 1, 4, 4}, {3, 2, 4})};
    matrix_case(cases, "solve", "torch.linalg.solve(shifted(x[0]), x[1])", matrices,
                [](In x) { return linalg::solve(shifted(x[0]), x[1]); });
    matrix_case(cases, "solve/vector", "torch.linalg.solve(shifted(x[0]), x[1])",
                {pair({3, 3}, {3}), pair({2, 3, 3}, {2, 3}), pair({2, 3, 3}, {3})},
                [](In x) { return linalg::solve(shifted(x[0]), x[1]); });
    matrix_case(cases, "solve/right", "torch.linalg.solve(shifted(x[0]), x[1], left=False)", rows,
                [](In x) { return linalg::solve(shifted(x[0]), x[1], false); });
    for (const bool upper : {false, true})
        for (const bool left : {true, false})
            for (const bool unit : {false, true})
                matrix_case(cases,
                            upper || !left || unit ? str("solve_triangular/", upper, left, unit)
                                                   : "solve_triangular",
                            str("torch.linalg.solve_triangular(shifted(x[0]), x[1], upper=",
                                upper ? "True" : "False", ", left=", left ? "True" : "False",
                                ", unitriangular=", unit ? "True" : "False", ")"),
                            left ? matrices : rows, [=](In x) {
                                return linalg::solve_triangular(shifted(x[0]), x[1], upper, left,
                                                                unit);
                            });
    for (const bool upper : {true, false})
        for (const bool transposed : {false, true})
            matrix_case(
                cases,
                upper && !transposed ? "triangular_solve"
                                     : str("triangular_solve/", upper, transposed),
                str("torch.triangular_solve(x[1], shifted(x[0]), upper=", upper ? "True" : "False",
                    ", transpose=", transposed ? "True" : "False", ")[0]"),
                matrices, [=](In x) {
                    return triangular_solve(x[1], shifted(x[0]), upper, transposed).first;
                });
    for (const bool upper : {false, true}) {
        const std::string triangle = upper ? "triu" : "tril", option = upper ? "True" : "False";
        const auto factor = [=](const Tensor& x) { return shifted(upper ? triu(x) : tril(x)); };
        matrix_case(
            cases, upper ? "cholesky_solve/upper" : "cholesky_solve",
            str("torch.cholesky_solve(x[1], shifted(x[0].", triangle, "()), upper=", option, ")"),
            matrices, [=](In x) { return cholesky_solve(x[1], factor(x[0]), upper); });
        matrix_case(
            cases, upper ? "cholesky_inverse/upper" : "cholesky_inverse",
            str("torch.cholesky_inverse(shifted(x[0].", triangle, "()), upper=", option, ")"),
            square_rows(), [=](In x) { return cholesky_inverse(factor(x[0]), upper); });
        matrix_case(cases, upper ? "cholesky/upper" : "cholesky",
                    str("torch.linalg.cholesky(symmetric(x[0], 4), upper=", option, ")"),
                    square_rows(),
                    [=](In x) { return linalg::cholesky(symmetric(x[0], 4), upper); });
    }
    matrix_case(cases, "inv", "torch.linalg.inv(shifted(x[0]))", square_rows(),
                [](In x) { return linalg::inv(shifted(x[0])); });
}

void linalg_determinants(Cases& cases) {
    matrix_case(cases, "det", "torch.linalg.det(x[0])", square_rows(),
                [](In x) { return linalg::det(x[0]); });
    // The last column equals the first column. PyTorch's gradient has an error of 1e-9, because it
    // adds a small number to the pivot that is 0.
    matrix_case(cases, "det/singular", "torch.linalg.det(torch.cat([x[0], x[0][..., :1]], -1))",
                {{small({3, 2})}, {small({2, 5, 4})}}, [](In x) {
                    return linalg::det(cat({x[0], narrow(x[0], -1, 0, 1)}, -1));
                });
    matrix_case(cases, "slogdet", "torch.linalg.slogdet(shifted(x[0]))", square_rows(),
                [](In x) { return linalg::slogdet(shifted(x[0])); });
    matrix_case(cases, "slogdet/negative", "torch.linalg.slogdet(-shifted(x[0]))",
                {{small({3, 3})}}, [](In x) { return linalg::slogdet(-shifted(x[0])); });
    matrix_case(cases, "logdet", "torch.logdet(shifted(x[0]))", square_rows(),
                [](In x) { return logdet(shifted(x[0])); });
    matrix_case(cases, "logdet/negative", "torch.logdet(-shifted(x[0]))", {{small({3, 3})}},
                [](In x) { return logdet(-shifted(x[0])); })
        .gradient = false;
}

// Returns matmul(a, b) without rounding to low precision under autocast.
Tensor product_in_f32(const Tensor& a, const Tensor& b) {
    return sum(mul(unsqueeze(a, -1), unsqueeze(b, -3)), -2);
}

void linalg_decompositions(Cases& cases) {
    // Eigen and LAPACK choose the same signs.
    matrix_case(cases, "qr", "torch.linalg.qr(x[0])", rectangular_rows(),
                [](In x) { return linalg::qr(x[0]); });
    matrix_case(cases, "qr/complete", "torch.linalg.qr(x[0], mode='complete')",
                {{small({3, 5})}, {small({3, 3})}},
                [](In x) { return linalg::qr(x[0], linalg::QrMode::complete); });
    matrix_case(cases, "qr/tall", "torch.linalg.qr(x[0], mode='complete')", rectangular_rows(),
                [](In x) { return linalg::qr(x[0], linalg::QrMode::complete); })
        .gradient = false;
    matrix_case(cases, "qr/r", "torch.linalg.qr(x[0], mode='r')", rectangular_rows(), [](In x) {
        return linalg::qr(x[0], linalg::QrMode::r);
    }).gradient = false;
    matrix_case(cases, "householder_product", "torch.linalg.householder_product(x[0], x[1])",
                {{small({5, 3}), small({3})},
                 {small({2, 4, 4}), small({2, 3})},
                 {small({7, 5}), small({5})},
                 {small({0, 3, 3}), small({0, 3})}},
                [](In x) { return linalg::householder_product(x[0], x[1]); });
    matrix_case(cases, "geqrf", "torch.geqrf(x[0])", rectangular_rows(), [](In x) {
        return linalg::geqrf(x[0]);
    }).gradient = false;
    for (const bool full : {true, false})
        matrix_case(cases, full ? "svd" : "svd/reduced",
                    str("filtered_singular_values(x[0], ", full ? "True" : "False", ")"),
                    rectangular_rows(), [full](In x) {
                        const auto [u, s, vh] = linalg::svd(x[0], full);
                        const std::int64_t k = s.size(-1);
                        const Tensor left = narrow(u, -1, 0, k), right = narrow(vh, -2, 0, k);
                        return std::pair(product_in_f32(mul(left, unsqueeze(exp(-s), -2)), right),
                                         s);
                    });
    matrix_case(cases, "svdvals", "torch.linalg.svdvals(x[0])", rectangular_rows(),
                [](In x) { return linalg::svdvals(x[0]); });
    for (const bool upper : {false, true}) {
        const std::string uplo = upper ? "'U'" : "'L'", variant = upper ? "/upper" : "";
        matrix_case(cases, "eigh" + variant,
                    str("filtered_eigenvalues(symmetric(x[0]), ", uplo, ")"), square_rows(),
                    [upper](In x) {
                        const auto [l, v] = linalg::eigh(symmetric(x[0]), upper);
                        const Tensor scaled = mul(v, unsqueeze(exp(-l), -2));
                        return std::pair(product_in_f32(scaled, transpose(v, -2, -1)), l);
                    });
        // The op reads only one triangle. As in PyTorch, its gradient assumes that the matrix is
        // symmetric.
        matrix_case(cases, "eigvalsh" + variant,
                    str("torch.linalg.eigvalsh(x[0], UPLO=", uplo, ")"), square_rows(),
                    [upper](In x) { return linalg::eigvalsh(x[0], upper); })
            .smooth = false;
    }
    matrix_case(cases, "eigvalsh/symmetric", "torch.linalg.eigvalsh(symmetric(x[0]))",
                square_rows(), [](In x) { return linalg::eigvalsh(symmetric(x[0])); });
}

void linalg_least_squares(Cases& cases) {
    const auto pair = [](const Shape& a, const Shape& b) { return Row{small(a), floats(b)}; };
    matrix_case(cases, "lstsq", "torch.linalg.lstsq(x[0], x[1], driver='gelsd')[:3]",
                {pair({5, 3}, {5, 2}), pair({3, 5}, {3, 2}), pair({2, 4, 3}, {2, 4, 1}),
                 pair({7, 5}, {7, 3}), pair({0, 4, 3}, {0, 4, 2})},
                [](In x) {
                    const linalg::LeastSquares y = linalg::lstsq(x[0], x[1]);
                    return std::vector{y.solution, y.residuals, y.rank};
                });
    matrix_case(cases, "lstsq/vector", "torch.linalg.lstsq(x[0], x[1]).solution",
                {pair({2, 5, 3}, {2, 5})}, [](In x) { return linalg::lstsq(x[0], x[1]).solution; });
    matrix_case(cases, "pinv", "torch.linalg.pinv(x[0])", rectangular_rows(),
                [](In x) { return linalg::pinv(x[0]); });
    matrix_case(cases, "pinv/hermitian", "torch.linalg.pinv(symmetric(x[0]), hermitian=True)",
                square_rows(),
                [](In x) { return linalg::pinv(symmetric(x[0]), {.hermitian = true}); });
    // The last column equals the first column, so the matrix does not have full rank.
    matrix_case(cases, "pinv/deficient",
                "torch.linalg.pinv(torch.cat([x[0], x[0][..., :1]], -1), rtol=1e-3)",
                {{small({3, 2})}, {small({2, 6, 4})}}, [](In x) {
                    return linalg::pinv(cat({x[0], narrow(x[0], -1, 0, 1)}, -1), {.rtol = 1e-3});
                });
    matrix_case(cases, "matrix_rank", "torch.linalg.matrix_rank(x[0], rtol=1e-2)",
                rectangular_rows(), [](In x) { return linalg::matrix_rank(x[0], {.rtol = 1e-2}); })
        .gradient = false;
    matrix_case(cases, "matrix_rank/atol", "torch.linalg.matrix_rank(x[0], atol=1.0)",
                rectangular_rows(), [](In x) { return linalg::matrix_rank(x[0], {.atol = 1.0}); })
        .gradient = false;
    matrix_case(cases, "matrix_rank/hermitian",
                "torch.linalg.matrix_rank(x[0], atol=0.5, hermitian=True)", square_rows(),
                [](In x) { return linalg::matrix_rank(x[0], {.atol = 0.5, .hermitian = true}); })
        .gradient = false;
    set_autocast(cases, Autocast::unchanged, {"matrix_rank"});
}

void linalg_functions(Cases& cases) {
    matrix_case(cases, "matrix_exp", "torch.linalg.matrix_exp(x[0])", square_rows(),
                [](In x) { return linalg::matrix_exp(x[0]); });
    matrix_case(cases, "matrix_exp/large", "torch.linalg.matrix_exp(x[0])",
                {{floats({4, 4}, -9, 1)}}, [](In x) { return linalg::matrix_exp(x[0]); });
    for (const int n : {-1, -3})
        matrix_case(cases, str("matrix_power/minus_", -n),
                    str("torch.linalg.matrix_power(shifted(x[0]), ", n, ")"), square_rows(),
                    [n](In x) { return matrix_power(shifted(x[0]), n); });
    const auto folded = [](const Tensor& x) {
        return reshape(shifted(x), {x.size(0), 2, x.size(0) / 2});
    };
    const std::string expression = "shifted(x[0]).reshape(x[0].shape[0], 2, x[0].shape[0] // 2)";
    matrix_case(cases, "tensorinv", str("torch.linalg.tensorinv(", expression, ", ind=1)"),
                {{small({4, 4})}, {small({6, 6})}, {small({0, 0})}},
                [=](In x) { return linalg::tensorinv(folded(x[0]), 1); });
    matrix_case(
        cases, "tensorsolve", str("torch.linalg.tensorsolve(", expression, ", x[1])"),
        {{small({4, 4}), floats({4})}, {small({6, 6}), floats({6})}, {small({0, 0}), floats({0})}},
        [=](In x) { return linalg::tensorsolve(folded(x[0]), x[1]); });
    matrix_case(cases, "tensorsolve/dims",
                str("torch.linalg.tensorsolve(", expression, ".movedim(1, 2), x[1], dims=(2,))"),
                {{small({4, 4}), floats({4})}},
                [=](In x) { return linalg::tensorsolve(movedim(folded(x[0]), 1, 2), x[1], 2); });
    matrix_case(cases, "vecdot", "torch.linalg.vecdot(x[0], x[1], dim=0)",
                {{floats({3, 4}), floats({3, 4})},
                 {floats({7, 5}), floats({7, 1})},
                 {floats({0, 3}), floats({0, 3})}},
                [](In x) { return linalg::vecdot(x[0], x[1], 0); });
    matrix_case(cases, "vander", "torch.linalg.vander(x[0])",
                {{small({3})}, {small({2, 4})}, {small({7, 7})}, {small({0, 3})}},
                [](In x) { return linalg::vander(x[0]); })
        .twice = false;  // cumprod has no second derivative
    matrix_case(cases, "vander/n", "torch.linalg.vander(x[0], N=4)",
                {{small({3})}, {small({5, 2})}}, [](In x) { return linalg::vander(x[0], 4); })
        .twice = false;
    matrix_case(cases, "vander/ints", "torch.linalg.vander(x[0], N=4)", {{ints({3}, -9, 9)}},
                [](In x) { return linalg::vander(x[0], 4); })
        .gradient = false;
}

// Returns a part of the name of a case: minus_2 for -2.
std::string label(const std::string& order) {
    return order[0] == '-' ? "minus_" + order.substr(1) : order;
}

void linalg_norms(Cases& cases) {
    using linalg::MatrixNorm;
    const std::vector<Row> rows = {
        {small({5, 3})}, {small({2, 3, 4})}, {small({7, 7})}, {small({0, 3, 4})}};
    matrix_case(cases, "matrix_norm", "torch.linalg.matrix_norm(x[0])", rows,
                [](In x) { return linalg::matrix_norm(x[0]); });
    matrix_case(cases, "matrix_norm/nuc", "torch.linalg.matrix_norm(x[0], 'nuc')", rows,
                [](In x) { return linalg::matrix_norm(x[0], MatrixNorm::nuc); });
    matrix_case(cases, "matrix_norm/nuc_dims",
                "torch.linalg.matrix_norm(x[0], 'nuc', dim=(2, 0), keepdim=True)",
                {{small({2, 3, 4})}}, [](In x) {
                    return linalg::matrix_norm(x[0], MatrixNorm::nuc, {2, 0}, true);
                });
    const std::pair<const char*, double> orders[] = {{"2", 2},
                                                     {"-2", -2},
                                                     {"1", 1},
                                                     {"-1", -1},
                                                     {"inf", kInfiniteOrder},
                                                     {"-inf", -kInfiniteOrder}};
    for (const auto& [text, p] : orders) {
        const double ord = p;
        if (ord > 0)
            matrix_case(cases, str("matrix_norm/empty_", label(text)),
                        str("torch.linalg.matrix_norm(x[0], ", text, ")"),
                        {{small({0, 0})}, {small({2, 0, 3})}, {small({3, 0})}},
                        [ord](In x) { return linalg::matrix_norm(x[0], ord); });
        matrix_case(cases, str("matrix_norm/", label(text)),
                    str("torch.linalg.matrix_norm(x[0], ", text, ")"), rows,
                    [ord](In x) { return linalg::matrix_norm(x[0], ord); });
        matrix_case(cases, str("matrix_norm/dims_", label(text)),
                    str("torch.linalg.matrix_norm(x[0], ", text, ", dim=(2, 0), keepdim=True)"),
                    {{small({2, 3, 4})}}, [ord](In x) {
                        return linalg::matrix_norm(x[0], ord, {2, 0}, true);
                    });
    }
    matrix_case(cases, "norm/linalg_all", "torch.linalg.norm(x[0])", rows,
                [](In x) { return linalg::norm(x[0]); });
    matrix_case(cases, "norm/linalg_matrix", "torch.linalg.norm(x[0], 1)", {{small({3, 4})}},
                [](In x) { return linalg::norm(x[0], 1.0); });
    matrix_case(cases, "norm/linalg_vector", "torch.linalg.norm(x[0], 3, dim=0)", {{small({3, 4})}},
                [](In x) { return linalg::norm(x[0], 3.0, 0); });
    matrix_case(cases, "norm/linalg_dims", "torch.linalg.norm(x[0], 2, dim=(0, 2), keepdim=True)",
                {{small({3, 2, 4})}}, [](In x) {
                    return linalg::norm(x[0], 2.0, {0, 2}, true);
                });
    for (const auto& [text, p] : {orders[0], orders[1], orders[2], orders[4]}) {
        const double ord = p;
        // PyTorch can differentiate cond() only for the orders 2 and -2.
        const std::string torch = std::abs(p) == 2
                                      ? str("torch.linalg.cond(shifted(x[0]), ", text, ")")
                                      : str("condition(shifted(x[0]), ", text, ")");
        matrix_case(cases, p == 2 ? "cond" : str("cond/", label(text)), torch, square_rows(),
                    [ord](In x) { return linalg::cond(shifted(x[0]), ord); });
    }
    matrix_case(cases, "cond/fro", "condition(shifted(x[0]), 'fro')", square_rows(),
                [](In x) { return linalg::cond(shifted(x[0]), MatrixNorm::fro); });
}

}  // namespace

void add_linalg_cases(Cases& cases) {
    linalg_equations(cases);
    linalg_determinants(cases);
    linalg_decompositions(cases);
    linalg_least_squares(cases);
    linalg_functions(cases);
    linalg_norms(cases);
    add_bad_linalg_calls(cases);
    // In other layouts, some operands have equal rows. The gradients of these ops are not defined
    // for such matrices, so CPU and GPU round them differently.
    for (OpCase& c : cases)
        if (std::set<std::string>{"qr", "svd", "eigh", "cond"}.contains(c.op())) c.strided = false;
}

}  // namespace axle::tests
