#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

// Returns the options of a new tensor for functions such as full_like(). Without the argument
// "dtype", the dtype is the dtype of x.
TensorOptions options_like(Call& c) { return c.options(c.x(0).dtype()); }

void name_constants(NamedOps& ops) {
    ops["zeros"] = [](Call& c) { return zeros(c.dims("size"), c.options(f32)); };
    ops["ones"] = [](Call& c) { return ones(c.dims("size"), c.options(f32)); };
    ops["full"] = [](Call& c) { return full(c.dims("size"), c.scalar("fill_value"), c.options()); };
    ops["scalar_tensor"] = [](Call& c) { return full({}, c.scalar("s"), c.options(f32)); };
    ops["zeros_like"] = [](Call& c) { return zeros(c.x(0).shape(), options_like(c)); };
    ops["ones_like"] = [](Call& c) { return ones(c.x(0).shape(), options_like(c)); };
    ops["full_like"] = [](Call& c) {
        if (!c.has("dtype")) {
            c.options();
            return full_like(c.x(0), c.scalar("fill_value"));
        }
        return full(c.x(0).shape(), c.scalar("fill_value"), options_like(c));
    };
    ops["new_zeros"] = [](Call& c) { return zeros(c.dims("size"), options_like(c)); };
    ops["new_ones"] = [](Call& c) { return ones(c.dims("size"), options_like(c)); };
    ops["new_full"] = [](Call& c) {
        return full(c.dims("size"), c.scalar("fill_value"), options_like(c));
    };
    ops["eye"] = [](Call& c) {
        const std::int64_t n = c.integer("n");
        return eye(n, c.integer("m", n), c.options(f32));
    };
}

// Returns the arguments start and end. Each of them can be a 0-d tensor instead.
std::pair<double, double> bounds(Call& c) {
    const double start = c.has("start") ? c.number("start") : c.x(0).item();
    return {start, c.has("end") ? c.number("end") : c.x(c.has("start") ? 0 : 1).item()};
}

void name_sequences(NamedOps& ops) {
    ops["arange"] = [](Call& c) {
        const Scalar start = c.scalar("start", 0), step = c.scalar("step", 1);
        return arange(start, c.scalar("end"), step, c.options());
    };
    ops["linspace"] = [](Call& c) {
        const auto [start, end] = bounds(c);
        return linspace(start, end, c.integer("steps"), c.options(f32));
    };
    ops["logspace"] = [](Call& c) {
        const auto [start, end] = bounds(c);
        return logspace(start, end, c.integer("steps"), c.number("base", 10), c.options(f32));
    };
    ops["meshgrid"] = [](Call& c) {
        const auto indexing = c.one_of<GridIndexing>(
            "indexing", "ij", {{"ij", GridIndexing::ij}, {"xy", GridIndexing::xy}});
        return meshgrid(c.tensors(), indexing);
    };
    ops["cartesian_prod"] = [](Call& c) { return cartesian_prod(c.tensors()); };
    ops["combinations"] = [](Call& c) {
        return combinations(c.x(0), c.integer("r", 2), c.flag("with_replacement", false));
    };
    ops["tril_indices"] = [](Call& c) {
        return tril_indices(c.integer("row"), c.integer("col"), c.integer("offset", 0),
                            c.options(i64));
    };
    ops["triu_indices"] = [](Call& c) {
        return triu_indices(c.integer("row"), c.integer("col"), c.integer("offset", 0),
                            c.options(i64));
    };
}

void name_conversions(NamedOps& ops) {
    ops["to"] = [](Call& c) {
        c.ignore({"non_blocking", "copy"});
        const std::optional<DType> dtype = c.options().dtype;
        if (c.size() > 1) return to(c.x(0), c.x(1).dtype());
        return dtype ? to(c.x(0), *dtype) : c.x(0);
    };
    ops["type"] = [](Call& c) { return to(c.x(0), c.dtype("dtype", c.x(0).dtype())); };
    ops["type_as"] = [](Call& c) { return to(c.x(0), c.x(1).dtype()); };
    const std::pair<const char*, DType> dtypes[] = {
        {"double", f64}, {"float", f32}, {"half", f16}, {"bfloat16", bf16},
        {"long", i64},   {"int", i32},   {"byte", u8},  {"bool", boolean}};
    for (const auto& [name, dtype] : dtypes)
        ops[name] = [dtype = dtype](Call& c) {
            c.ignore({"memory_format"});
            return to(c.x(0), dtype);
        };
    ops["contiguous"] = [](Call& c) {
        c.ignore({"memory_format"});
        return contiguous(c.x(0));
    };
    ops["clone"] = [](Call& c) {
        c.ignore({"memory_format"});
        return clone(c.x(0));
    };
    ops["detach"] = [](Call& c) { return c.x(0).detach(); };
    // Supports only calls that need no random numbers.
    ops["dropout"] = [](Call& c) {
        const double p = c.number("p", 0.5);
        const bool training = c.flag("training", c.flag("train", true));
        if (training && p > 0 && p < 1) throw ValueError("argument p: must be 0 or 1 in training");
        return dropout(c.x(0), p, training);
    };
}

}  // namespace

void add_creation_ops(NamedOps& ops) {
    name_constants(ops);
    name_sequences(ops);
    name_conversions(ops);
}

}  // namespace axle::tests
