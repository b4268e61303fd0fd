#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

void name_orders_of_elements(NamedOps& ops) {
    // All sorts are stable, and the elements of topk() are always sorted.
    ops["topk"] = [](Call& c) {
        c.ignore({"sorted"});
        return topk(c.x(0), c.integer("k"), c.integer("dim", -1), c.flag("largest", true));
    };
    ops["sort"] = [](Call& c) {
        c.ignore({"stable"});
        return sort(c.x(0), c.integer("dim", -1), c.flag("descending", false));
    };
    ops["argsort"] = [](Call& c) {
        c.ignore({"stable"});
        return argsort(c.x(0), c.integer("dim", -1), c.flag("descending", false));
    };
    ops["msort"] = [](Call& c) { return sort(c.x(0), 0).first; };
    ops["median"] = [](Call& c) {
        return c.has("dim") ? Outputs(median(c.x(0), c.integer("dim"), c.flag("keepdim", false)))
                            : Outputs(median(c.x(0)));
    };
    ops["nanmedian"] = [](Call& c) {
        return c.has("dim") ? Outputs(nanmedian(c.x(0), c.integer("dim"), c.flag("keepdim", false)))
                            : Outputs(nanmedian(c.x(0)));
    };
    ops["kthvalue"] = [](Call& c) {
        return kthvalue(c.x(0), c.integer("k"), c.integer("dim", -1), c.flag("keepdim", false));
    };
    ops["mode"] = [](Call& c) {
        return mode(c.x(0), c.integer("dim", -1), c.flag("keepdim", false));
    };
}

// The quantiles are a number, a list of numbers or the second input.
Tensor quantile_of(Call& c, bool skip_nan) {
    using Interpolation = QuantileInterpolation;
    const auto interpolation = c.one_of<Interpolation>("interpolation", "linear",
                                                       {{"linear", Interpolation::linear},
                                                        {"lower", Interpolation::lower},
                                                        {"higher", Interpolation::higher},
                                                        {"midpoint", Interpolation::midpoint},
                                                        {"nearest", Interpolation::nearest}});
    const std::optional<std::int64_t> dim = c.maybe_integer("dim");
    const bool keepdim = c.flag("keepdim", false);
    if (c.has("q") && !c.is_list("q")) {
        const double q = c.number("q");
        return skip_nan ? nanquantile(c.x(0), q, dim, keepdim, interpolation)
                        : quantile(c.x(0), q, dim, keepdim, interpolation);
    }
    const Tensor q = c.has("q") ? tensor(c.numbers("q"), {.dtype = c.x(0).dtype()}) : c.x(1);
    return skip_nan ? nanquantile(c.x(0), q, dim, keepdim, interpolation)
                    : quantile(c.x(0), q, dim, keepdim, interpolation);
}

// Returns the outputs of unique() that the flags select.
Outputs selected(Call& c, const UniqueElements& unique) {
    std::vector<Tensor> outputs = {unique.values};
    if (c.flag("return_inverse", false)) outputs.push_back(unique.inverse);
    if (c.flag("return_counts", false)) outputs.push_back(unique.counts);
    return outputs;
}

// Returns whether positions are to the right of equal elements.
bool is_right(Call& c) {
    const bool right = c.flag("right", false);
    return c.has("side") ? c.one_of<bool>("side", "left", {{"left", false}, {"right", true}})
                         : right;
}

Tensor positions_as(Call& c, const Tensor& positions) {
    return c.flag("out_int32", false) ? to(positions, i32) : positions;
}

void name_counts(NamedOps& ops) {
    ops["quantile"] = [](Call& c) { return quantile_of(c, false); };
    ops["nanquantile"] = [](Call& c) { return quantile_of(c, true); };
    ops["histc"] = [](Call& c) {
        return histc(c.x(0), c.integer("bins", 100), c.number("min", 0), c.number("max", 0));
    };
    ops["bincount"] = [](Call& c) {
        return bincount(c.x(0), c.optional_x(1), c.integer("minlength", 0));
    };
    ops["unique"] = [](Call& c) {
        c.ignore({"sorted"});
        return selected(c, unique(c.x(0), c.maybe_integer("dim")));
    };
    ops["unique_consecutive"] = [](Call& c) {
        return selected(c, unique_consecutive(c.x(0), c.maybe_integer("dim")));
    };
    // The value can be a number: the argument input, or self in ATen.
    ops["searchsorted"] = [](Call& c) {
        const bool right = is_right(c);
        for (const char* name : {"input", "self"})
            if (c.has(name)) {
                if (c.size() > 1 && c.optional_x(1).defined())
                    throw ValueError("input 1: a sorter for a number is not supported");
                return positions_as(c, searchsorted(c.x(0), c.scalar(name), right));
            }
        return positions_as(c, searchsorted(c.x(0), c.x(1), right, c.optional_x(2)));
    };
    ops["bucketize"] = [](Call& c) {
        const bool right = c.flag("right", false);
        for (const char* name : {"input", "self"})
            if (c.has(name)) return positions_as(c, searchsorted(c.x(0), c.scalar(name), right));
        return positions_as(c, bucketize(c.x(0), c.x(1), right));
    };
    ops["diff"] = [](Call& c) {
        return diff(c.x(0), c.integer("n", 1), c.integer("dim", -1), c.optional_x(1),
                    c.optional_x(2));
    };
    ops["trapezoid"] = [](Call& c) {
        const std::int64_t dim = c.integer("dim", -1);
        return c.size() > 1 ? trapezoid(c.x(0), c.x(1), dim)
                            : trapezoid(c.x(0), c.number("dx", 1), dim);
    };
}

}  // namespace

void add_statistics_ops(NamedOps& ops) {
    name_orders_of_elements(ops);
    name_counts(ops);
}

}  // namespace axle::tests
