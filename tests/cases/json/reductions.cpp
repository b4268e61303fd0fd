#include <cmath>

#include "core/linalg.h"
#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

// Returns y, the reduction of all elements of x. If keepdim is true, adds the dimensions of size 1.
Tensor of_all(const Tensor& y, const Tensor& x, bool keepdim) {
    Shape shape;
    for (int d = 0; keepdim && d < x.dim(); ++d) shape.push_back(1);
    return view(y, shape);
}

// Returns y in the dtype of the argument "dtype", if given. Sums of integers are i64.
Tensor as_dtype(Call& c, const Tensor& y) { return to(y, c.dtype("dtype", y.dtype())); }

using Reduce = Tensor (*)(const Tensor&, const Dims&, bool);

void name_sums(NamedOps& ops) {
    const std::pair<const char*, Reduce> functions[] = {
        {"sum", sum},   {"mean", mean}, {"nansum", nansum}, {"nanmean", nanmean},    {"amax", amax},
        {"amin", amin}, {"any", any},   {"all", all},       {"logsumexp", logsumexp}};
    for (const auto& [name, f] : functions)
        ops[name] = [f = f](Call& c) {
            return as_dtype(c, f(c.converted(), c.dims("dim", {}), c.flag("keepdim", false)));
        };
    ops["count_nonzero"] = [](Call& c) { return count_nonzero(c.x(0), c.dims("dim", {})); };
    ops["prod"] = [](Call& c) {
        const Tensor x = c.converted();
        return as_dtype(
            c, c.has("dim") ? prod(x, c.integer("dim"), c.flag("keepdim", false)) : prod(x));
    };
    ops["cumsum"] = [](Call& c) { return as_dtype(c, cumsum(c.converted(), c.integer("dim"))); };
    ops["cumprod"] = [](Call& c) { return as_dtype(c, cumprod(c.converted(), c.integer("dim"))); };
    ops["logcumsumexp"] = [](Call& c) { return logcumsumexp(c.x(0), c.integer("dim")); };
}

// Returns the correction of a variance. The older argument `unbiased` gives the correction 1 or 0.
double correction_of(Call& c) {
    if (c.has("unbiased")) return c.flag("unbiased", true) ? 1 : 0;
    return c.number("correction", 1);
}

// Returns the exponent of a vector norm. "fro" is the 2-norm of all elements of a matrix.
double exponent_of(Call& c, const char* name) {
    if (!c.is_text(name)) return c.number(name, 2);
    return c.text(name, "") == "fro" ? 2 : c.number(name);
}

// linalg.norm computes a matrix norm if `ord` is given, and `dim` has two dimensions or x is a
// matrix. Otherwise it computes a vector norm.
Tensor linalg_norm(Call& c) {
    const Tensor x = c.converted();
    const Dims dims = c.dims("dim", {});
    const bool keepdim = c.flag("keepdim", false);
    const bool of_matrix = c.has("ord") && (dims.size() == 2 || (dims.empty() && x.dim() == 2));
    const Dims both = dims.empty() ? Dims{0, 1} : dims;
    if (of_matrix && c.is_text("ord") && c.text("ord", "") == "nuc")
        return linalg::matrix_norm(x, linalg::MatrixNorm::nuc, both, keepdim);
    const double p = exponent_of(c, "ord");
    // An infinite order is also a text, such as "inf".
    const bool is_fro = c.is_text("ord") && c.text("ord", "") == "fro";
    if (!of_matrix || is_fro) return vector_norm(x, p, dims, keepdim);
    return linalg::matrix_norm(x, p, both, keepdim);
}

void name_norms(NamedOps& ops) {
    ops["norm"] = [](Call& c) {
        if (c.has("ord")) return linalg_norm(c);
        return norm(c.converted(), exponent_of(c, "p"), c.dims("dim", {}),
                    c.flag("keepdim", false));
    };
    ops["linalg.norm"] = linalg_norm;
    ops["vector_norm"] = [](Call& c) {
        return vector_norm(c.converted(), c.number("ord", 2), c.dims("dim", {}),
                           c.flag("keepdim", false));
    };
    ops["renorm"] = [](Call& c) {
        return renorm(c.x(0), c.number("p"), c.integer("dim"), c.number("maxnorm"));
    };
    ops["var"] = [](Call& c) {
        return var(c.x(0), c.dims("dim", {}), correction_of(c), c.flag("keepdim", false));
    };
    ops["std"] = [](Call& c) {
        return axle::std(c.x(0), c.dims("dim", {}), correction_of(c), c.flag("keepdim", false));
    };
    ops["var_mean"] = [](Call& c) {
        return var_mean(c.x(0), c.dims("dim", {}), correction_of(c), c.flag("keepdim", false));
    };
    ops["std_mean"] = [](Call& c) {
        return std_mean(c.x(0), c.dims("dim", {}), correction_of(c), c.flag("keepdim", false));
    };
}

void name_extremes(NamedOps& ops) {
    // torch.max and torch.min reduce all elements or one dimension, or compare two tensors.
    ops["max"] = [](Call& c) {
        if (c.size() > 1 || c.has("other")) return Outputs(maximum(c.x(0), c.operand(1, "other")));
        if (!c.has("dim")) return Outputs(max(c.x(0)));
        return Outputs(max_with_indices(c.x(0), c.integer("dim"), c.flag("keepdim", false)));
    };
    ops["min"] = [](Call& c) {
        if (c.size() > 1 || c.has("other")) return Outputs(minimum(c.x(0), c.operand(1, "other")));
        if (!c.has("dim")) return Outputs(min(c.x(0)));
        return Outputs(min_with_indices(c.x(0), c.integer("dim"), c.flag("keepdim", false)));
    };
    ops["aminmax"] = [](Call& c) {
        return aminmax(c.x(0), c.maybe_integer("dim"), c.flag("keepdim", false));
    };
    ops["argmax"] = [](Call& c) {
        const bool keepdim = c.flag("keepdim", false);
        if (c.has("dim")) return argmax(c.x(0), c.integer("dim"), keepdim);
        return of_all(argmax(flatten(c.x(0)), 0), c.x(0), keepdim);
    };
    ops["argmin"] = [](Call& c) {
        const bool keepdim = c.flag("keepdim", false);
        if (c.has("dim")) return argmin(c.x(0), c.integer("dim"), keepdim);
        return of_all(argmin(flatten(c.x(0)), 0), c.x(0), keepdim);
    };
    ops["cummax"] = [](Call& c) { return cummax(c.x(0), c.integer("dim")); };
    ops["cummin"] = [](Call& c) { return cummin(c.x(0), c.integer("dim")); };
}

}  // namespace

void add_reduction_ops(NamedOps& ops) {
    name_sums(ops);
    name_norms(ops);
    name_extremes(ops);
}

}  // namespace axle::tests
