#include "core/linalg.h"

#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

using linalg::MatrixNorm;
using Matrix = Tensor (*)(const Tensor&);

linalg::RankOptions rank_options(Call& c) {
    std::optional<double> rtol = c.maybe_number("rtol");
    if (c.has("rcond")) rtol = c.number("rcond");
    return {c.maybe_number("atol"), rtol, c.flag("hermitian", false)};
}

// Returns a matrix norm. Its order is a number (infinities are texts), or the name fro or nuc.
Tensor named_matrix_norm(Call& c, const Dims& dims) {
    const bool keepdim = c.flag("keepdim", false);
    const std::string name = c.has("ord") && c.is_text("ord") ? c.text("ord", "") : "";
    if (!c.has("ord") || name == "fro")
        return linalg::matrix_norm(c.x(0), MatrixNorm::fro, dims, keepdim);
    if (name == "nuc") return linalg::matrix_norm(c.x(0), MatrixNorm::nuc, dims, keepdim);
    return linalg::matrix_norm(c.x(0), c.number("ord"), dims, keepdim);
}

void name_equations(NamedOps& ops) {
    ops["cholesky"] = [](Call& c) { return linalg::cholesky(c.x(0), c.flag("upper", false)); };
    ops["cholesky_inverse"] = [](Call& c) {
        return cholesky_inverse(c.x(0), c.flag("upper", false));
    };
    ops["cholesky_solve"] = [](Call& c) {
        return cholesky_solve(c.x(0), c.x(1), c.flag("upper", false));
    };
    ops["solve"] = [](Call& c) { return linalg::solve(c.x(0), c.x(1), c.flag("left", true)); };
    ops["solve_triangular"] = [](Call& c) {
        return linalg::solve_triangular(c.x(0), c.x(1), c.flag("upper", false),
                                        c.flag("left", true), c.flag("unitriangular", false));
    };
    ops["triangular_solve"] = [](Call& c) {
        return triangular_solve(c.x(0), c.x(1), c.flag("upper", true), c.flag("transpose", false),
                                c.flag("unitriangular", false));
    };
    ops["tensorinv"] = [](Call& c) { return linalg::tensorinv(c.x(0), c.integer("ind", 2)); };
    ops["tensorsolve"] = [](Call& c) {
        return linalg::tensorsolve(c.x(0), c.x(1), c.dims("dims", {}));
    };
    // With its default driver gelsy, PyTorch computes neither residuals nor singular values.
    ops["lstsq"] = [](Call& c) {
        const linalg::LeastSquares y = linalg::lstsq(c.x(0), c.x(1), c.maybe_number("rcond"));
        if (c.text("driver", "gelsy") != "gelsy")
            return std::vector{y.solution, y.residuals, y.rank, y.singular_values};
        const Tensor none = zeros({0}, {y.solution.dtype()});
        return std::vector{y.solution, none, y.rank, none};
    };
}

void name_functions(NamedOps& ops) {
    const std::pair<const char*, Matrix> functions[] = {
        {"inv", linalg::inv}, {"inverse", linalg::inv},     {"det", linalg::det},
        {"logdet", logdet},   {"svdvals", linalg::svdvals}, {"matrix_exp", linalg::matrix_exp}};
    for (const auto& [name, f] : functions) ops[name] = [f = f](Call& c) { return f(c.x(0)); };
    ops["slogdet"] = [](Call& c) { return linalg::slogdet(c.x(0)); };
    ops["eigvalsh"] = [](Call& c) { return linalg::eigvalsh(c.x(0), c.text("UPLO", "L") == "U"); };
    ops["qr"] = [](Call& c) {
        using linalg::QrMode;
        const QrMode mode = c.one_of<QrMode>(
            "mode", "reduced",
            {{"reduced", QrMode::reduced}, {"complete", QrMode::complete}, {"r", QrMode::r}});
        return linalg::qr(c.x(0), mode);
    };
    ops["geqrf"] = [](Call& c) { return linalg::geqrf(c.x(0)); };
    ops["householder_product"] = [](Call& c) {
        return linalg::householder_product(c.x(0), c.x(1));
    };
    ops["pinv"] = [](Call& c) { return linalg::pinv(c.x(0), rank_options(c)); };
    ops["pinverse"] = [](Call& c) { return pinverse(c.x(0), c.number("rcond", 1e-15)); };
    ops["matrix_rank"] = [](Call& c) { return linalg::matrix_rank(c.x(0), rank_options(c)); };
    ops["linalg.vander"] = [](Call& c) { return linalg::vander(c.x(0), c.maybe_integer("N")); };
    ops["matrix_norm"] = [](Call& c) { return named_matrix_norm(c, c.dims("dim", {-2, -1})); };
    ops["linalg.cond"] = [](Call& c) {
        const std::string name = c.has("p") && c.is_text("p") ? c.text("p", "") : "";
        if (name == "fro") return linalg::cond(c.x(0), MatrixNorm::fro);
        if (name == "nuc") return linalg::cond(c.x(0), MatrixNorm::nuc);
        return linalg::cond(c.x(0), c.number("p", 2));
    };
}

}  // namespace

void add_linalg_ops(NamedOps& ops) {
    name_equations(ops);
    name_functions(ops);
}

}  // namespace axle::tests
