#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

void add_views(NamedOps& ops) {
    ops["view"] = [](Call& c) { return view(c.x(0), c.dims("size")); };
    ops["reshape"] = [](Call& c) { return reshape(c.x(0), c.dims("shape")); };
    ops["flatten"] = [](Call& c) {
        return flatten(c.x(0), c.integer("start_dim", 0), c.integer("end_dim", -1));
    };
    ops["transpose"] = [](Call& c) {
        return transpose(c.x(0), c.integer("dim0"), c.integer("dim1"));
    };
    ops["permute"] = [](Call& c) { return permute(c.x(0), c.dims("dims")); };
    ops["expand"] = [](Call& c) { return expand(c.x(0), c.dims("size")); };
    ops["squeeze"] = [](Call& c) {
        return c.has("dim") ? squeeze(c.x(0), c.integer("dim")) : squeeze(c.x(0));
    };
    ops["unsqueeze"] = [](Call& c) { return unsqueeze(c.x(0), c.integer("dim")); };
    ops["narrow"] = [](Call& c) {
        return narrow(c.x(0), c.integer("dim"), c.integer("start"), c.integer("length"));
    };
    ops["select"] = [](Call& c) { return select(c.x(0), c.integer("dim"), c.integer("index")); };
    ops["split"] = [](Call& c) {
        const Dims sizes = c.dims("split_size_or_sections");
        return sizes.size() == 1 ? split(c.x(0), sizes[0], c.integer("dim", 0))
                                 : split(c.x(0), sizes, c.integer("dim", 0));
    };
    ops["chunk"] = [](Call& c) { return chunk(c.x(0), c.integer("chunks"), c.integer("dim", 0)); };
    ops["cat"] = [](Call& c) { return cat(c.list(), c.integer("dim", 0)); };
    ops["stack"] = [](Call& c) { return stack(c.list(), c.integer("dim", 0)); };
    ops["contiguous"] = [](Call& c) { return contiguous(c.x(0)); };
    ops["clone"] = [](Call& c) { return clone(c.x(0)); };
    ops["to"] = [](Call& c) { return to(c.x(0), c.dtype("dtype", f32)); };
    ops["flip"] = [](Call& c) { return flip(c.x(0), c.dims("dims")); };
    ops["pad"] = [](Call& c) {
        const std::string mode = c.text("mode", "constant");
        const std::map<std::string, PadMode> modes = {{"constant", PadMode::constant},
                                                      {"reflect", PadMode::reflect},
                                                      {"replicate", PadMode::replicate},
                                                      {"circular", PadMode::circular}};
        return pad(c.x(0), c.dims("pad"), modes.at(mode), c.scalar("value", 0));
    };
}

void add_creation(NamedOps& ops) {
    ops["zeros"] = [](Call& c) { return zeros(c.dims("size"), {c.dtype("dtype", f32)}); };
    ops["ones"] = [](Call& c) { return ones(c.dims("size"), {c.dtype("dtype", f32)}); };
    ops["full"] = [](Call& c) {
        const Scalar value = c.scalar("fill_value");
        return c.has("dtype") ? full(c.dims("size"), value, {c.dtype("dtype", f32)})
                              : full(c.dims("size"), value);
    };
    ops["arange"] = [](Call& c) {
        const Scalar start = c.scalar("start", 0), step = c.scalar("step", 1);
        return c.has("dtype") ? arange(start, c.scalar("end"), step, {c.dtype("dtype", f32)})
                              : arange(start, c.scalar("end"), step);
    };
    ops["zeros_like"] = [](Call& c) { return zeros_like(c.x(0)); };
    ops["ones_like"] = [](Call& c) { return ones_like(c.x(0)); };
    ops["full_like"] = [](Call& c) { return full_like(c.x(0), c.scalar("fill_value")); };
    ops["tril"] = [](Call& c) { return tril(c.x(0), c.integer("diagonal", 0)); };
    ops["triu"] = [](Call& c) { return triu(c.x(0), c.integer("diagonal", 0)); };
    ops["one_hot"] = [](Call& c) { return one_hot(c.x(0), c.integer("num_classes")); };
}

void add_indexing(NamedOps& ops) {
    ops["gather"] = [](Call& c) { return gather(c.x(0), c.integer("dim"), c.x(1)); };
    ops["index_select"] = [](Call& c) { return index_select(c.x(0), c.integer("dim"), c.x(1)); };
    ops["scatter_add"] = [](Call& c) {
        return scatter_add(c.x(0), c.integer("dim"), c.x(1), c.x(2));
    };
    ops["embedding"] = [](Call& c) {
        return embedding(c.x(0), c.x(1), c.maybe_integer("padding_idx"));
    };
}

}  // namespace

void add_shape_ops(NamedOps& ops) {
    add_views(ops);
    add_creation(ops);
    add_indexing(ops);
}

}  // namespace axle::tests
