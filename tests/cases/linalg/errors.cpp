// Calls that the ops of linear algebra must reject.
#include <limits>

#include "core/linalg.h"
#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

void add_bad_linalg_calls(Cases& cases) {
    using linalg::LinAlgError;
    const std::pair<const char*, std::function<void(const Tensor&)>> square_only[] = {
        {"cholesky", [](const Tensor& x) { linalg::cholesky(x); }},
        {"inv", [](const Tensor& x) { linalg::inv(x); }},
        {"det", [](const Tensor& x) { linalg::det(x); }},
        {"slogdet", [](const Tensor& x) { linalg::slogdet(x); }},
        {"logdet", [](const Tensor& x) { logdet(x); }},
        {"eigh", [](const Tensor& x) { linalg::eigh(x); }},
        {"eigvalsh", [](const Tensor& x) { linalg::eigvalsh(x); }},
        {"matrix_exp", [](const Tensor& x) { linalg::matrix_exp(x); }},
        {"cholesky_inverse", [](const Tensor& x) { cholesky_inverse(x); }}};
    for (const auto& [op, call] : square_only) {
        refuses<ShapeError>(cases, op, {"[2, 3]"}, [call = call] { call(floats_of({2, 3})); });
        refuses<ShapeError>(cases, op, {"[3]"}, [call = call] { call(floats_of({3})); });
        refuses<DTypeError>(cases, op, {"int64"}, [call = call] { call(ints_of({2, 2})); });
        refuses<UsageError>(cases, op, {}, [call = call] { call(Tensor()); });
    }
    const std::pair<const char*, std::function<void(const Tensor&)>> any[] = {
        {"qr", [](const Tensor& x) { linalg::qr(x); }},
        {"geqrf", [](const Tensor& x) { linalg::geqrf(x); }},
        {"svd", [](const Tensor& x) { linalg::svd(x); }},
        {"svdvals", [](const Tensor& x) { linalg::svdvals(x); }},
        {"pinv", [](const Tensor& x) { linalg::pinv(x); }},
        {"matrix_rank", [](const Tensor& x) { linalg::matrix_rank(x); }},
        {"matrix_norm", [](const Tensor& x) { linalg::matrix_norm(x, 2.0); }},
        {"cond", [](const Tensor& x) { linalg::cond(x); }}};
    for (const auto& [op, call] : any) {
        refuses<ShapeError>(cases, op, {"[3]"}, [call = call] { call(floats_of({3})); });
        refuses<DTypeError>(cases, op, {"int64"}, [call = call] { call(ints_of({2, 2})); });
        refuses<UsageError>(cases, op, {}, [call = call] { call(Tensor()); });
    }
    using Two = Tensor (*)(const Tensor&, const Tensor&);
    const std::pair<const char*, Two> two[] = {
        {"solve", [](const Tensor& a, const Tensor& b) { return linalg::solve(a, b); }},
        {"solve_triangular",
         [](const Tensor& a, const Tensor& b) { return linalg::solve_triangular(a, b, true); }},
        {"triangular_solve",
         [](const Tensor& a, const Tensor& b) { return triangular_solve(b, a).first; }},
        {"cholesky_solve", [](const Tensor& a, const Tensor& b) { return cholesky_solve(b, a); }},
        {"lstsq", [](const Tensor& a, const Tensor& b) { return linalg::lstsq(a, b).solution; }}};
    for (const auto& [op, f] : two) {
        refuses<ShapeError>(cases, op, {"[3, 3]", "[2, 3]"}, [f = f] {
            f(floats_of({3, 3}), floats_of({2, 3}));
        });
        refuses<ShapeError>(cases, op, {"[2]", "[3]"}, [f = f] {
            f(floats_of({2, 3, 3}), floats_of({3, 3, 1}));
        });
        refuses<DTypeError>(cases, op, {"float32", "float64"}, [f = f] {
            f(floats_of({3, 3}), ones({3, 3}, {f64}));
        });
        refuses<UsageError>(cases, op, {}, [f = f] { f(floats_of({3, 3}), Tensor()); });
    }
    refuses<ShapeError>(cases, "householder_product", {"[3, 2]", "[3]"}, [] {
        linalg::householder_product(floats_of({3, 2}), floats_of({3}));
    });
    refuses<UsageError>(cases, "householder_product", {}, [] {
        linalg::householder_product(floats_of({3, 2}), Tensor());
    });
    const auto singular = [] { return stack({eye(2), zeros({2, 2})}); };
    refuses<LinAlgError>(cases, "inv", {"(Batch element 1)", "singular", "pivot 1"},
                         [=] { linalg::inv(singular()); });
    refuses<LinAlgError>(cases, "solve", {"(Batch element 1)", "singular"}, [=] {
        linalg::solve(singular(), ones({2, 2, 1}));
    });
    refuses<LinAlgError>(cases, "cholesky", {"(Batch element 1)", "order 1"},
                         [=] { linalg::cholesky(singular()); });
    refuses<LinAlgError>(cases, "cholesky", {"cholesky: the matrix", "order 2"}, [] {
        linalg::cholesky(tensor({1.0, 2.0, 2.0, 1.0}, {2, 2}));
    });
    for (const char* op : {"svd", "eigh", "matrix_exp"})
        refuses<LinAlgError>(cases, op, {"finite"}, [op] {
            const Tensor x = full({2, 2}, std::numeric_limits<double>::infinity());
            op == std::string("svd")    ? (void)linalg::svd(x)
            : op == std::string("eigh") ? (void)linalg::eigh(x)
                                        : (void)linalg::matrix_exp(x);
        });
    refuses<ValueError>(cases, "matrix_norm", {"3"}, [] {
        linalg::matrix_norm(floats_of({2, 2}), 3.0);
    });
    refuses<ValueError>(cases, "matrix_norm", {"differ"}, [] {
        linalg::matrix_norm(floats_of({2, 2}), 2.0, {0, -2});
    });
    refuses<ValueError>(cases, "pinv", {"rtol"}, [] {
        linalg::pinv(floats_of({2, 2}), {.rtol = -1});
    });
    refuses<ShapeError>(cases, "tensorinv", {"[2, 3]"}, [] {
        linalg::tensorinv(floats_of({2, 3}), 1);
    });
    refuses<ValueError>(cases, "tensorinv", {"0"}, [] { linalg::tensorinv(floats_of({2, 2}), 0); });
    refuses<ShapeError>(cases, "tensorsolve", {"[2, 3]", "[2]"}, [] {
        linalg::tensorsolve(floats_of({2, 3}), floats_of({2}));
    });
    refuses<UsageError>(cases, "vecdot", {}, [] { linalg::vecdot(floats_of({2}), Tensor()); });
    refuses<DTypeError>(cases, "vander", {"bool"}, [] { linalg::vander(bools_of({3})); });
    refuses<ShapeError>(cases, "vander", {"[]"}, [] { linalg::vander(floats_of({})); });
    refuses<ValueError>(cases, "vander", {"1"}, [] { linalg::vander(floats_of({3}), 1); });
    refuses<ShapeError>(cases, "norm", {"[2, 2, 2]"}, [] {
        linalg::norm(floats_of({2, 2, 2}), 2.0);
    });
}

}  // namespace axle::tests
