#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

using nlohmann::json;
using Product = Tensor (*)(const Tensor&, const Tensor&);
using AddedProduct = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, Scalar, Scalar);

void name_products(NamedOps& ops) {
    const std::pair<const char*, Product> functions[] = {
        {"matmul", matmul}, {"bmm", bmm},  {"mm", mm},       {"mv", mv},
        {"dot", dot},       {"vdot", dot}, {"outer", outer}, {"kron", kron}};
    for (const auto& [name, f] : functions)
        ops[name] = [f = f](Call& c) { return f(c.x(0), c.x(1)); };
    const std::pair<const char*, AddedProduct> added[] = {{"addmm", addmm},
                                                          {"addmv", addmv},
                                                          {"addr", addr},
                                                          {"baddbmm", baddbmm},
                                                          {"addbmm", addbmm}};
    for (const auto& [name, f] : added)
        ops[name] = [f = f](Call& c) {
            return f(c.x(0), c.x(1), c.x(2), c.scalar("beta", 1), c.scalar("alpha", 1));
        };
    ops["inner"] = [](Call& c) {
        const Tensor &a = c.x(0), &b = c.x(1);
        return a.dim() == 0 || b.dim() == 0 ? mul(a, b) : tensordot(a, b, Dims(-1), Dims(-1));
    };
    ops["vecdot"] = [](Call& c) { return sum(mul(c.x(0), c.x(1)), c.integer("dim", -1)); };
    ops["matrix_power"] = [](Call& c) { return matrix_power(c.x(0), c.integer("n")); };
    ops["multi_dot"] = [](Call& c) { return multi_dot(c.tensors()); };
    ops["chain_matmul"] = [](Call& c) { return chain_matmul(c.tensors()); };
    ops["linear"] = [](Call& c) { return linear(c.x(0), c.x(1), c.optional_x(2)); };
}

void name_sums_of_products(NamedOps& ops) {
    ops["cross"] = [](Call& c) { return cross(c.x(0), c.x(1), c.maybe_integer("dim")); };
    ops["linalg.cross"] = [](Call& c) { return cross(c.x(0), c.x(1), c.integer("dim", -1)); };
    // The dims are a number, or a list of dimensions for each operand.
    ops["tensordot"] = [](Call& c) {
        if (c.has("dims_self")) {
            return tensordot(c.x(0), c.x(1), c.dims("dims_self"), c.dims("dims_other"));
        }
        if (!c.is_list("dims")) return tensordot(c.x(0), c.x(1), c.integer("dims", 2));
        const json& dims = c.value("dims");
        if (dims.size() != 2)
            throw ValueError("argument dims: expected an integer or two lists of integers");
        const auto list = [](const json& part) {
            return part.is_number_integer() ? Dims(part.get<std::int64_t>())
                                            : Dims(part.get<std::vector<std::int64_t>>());
        };
        return tensordot(c.x(0), c.x(1), list(dims[0]), list(dims[1]));
    };
    ops["einsum"] = [](Call& c) {
        c.ignore({"path"});
        if (!c.has("equation")) throw ValueError("argument equation is missing");
        return einsum(c.text("equation", ""), c.tensors());
    };
}

void name_distances(NamedOps& ops) {
    ops["cdist"] = [](Call& c) {
        c.ignore({"compute_mode"});  // changes only the rounding
        return cdist(c.x(0), c.x(1), c.number("p", 2));
    };
    ops["pairwise_distance"] = [](Call& c) {
        return pairwise_distance(c.x(0), c.x(1), c.number("p", 2), c.number("eps", 1e-6),
                                 c.flag("keepdim", false));
    };
    ops["cosine_similarity"] = [](Call& c) {
        return cosine_similarity(c.x(0), c.x(1), c.integer("dim", 1), c.number("eps", 1e-8));
    };
    ops["normalize"] = [](Call& c) {
        return normalize(c.x(0), c.number("p", 2), c.integer("dim", 1), c.number("eps", 1e-12));
    };
}

}  // namespace

void add_product_ops(NamedOps& ops) {
    name_products(ops);
    name_sums_of_products(ops);
    name_distances(ops);
}

}  // namespace axle::tests
