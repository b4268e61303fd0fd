#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

// Splits by a number of parts or by a list of positions.
template <class Split>
Outputs split_tensor(Call& c, Split&& split_at) {
    for (const char* name : {"indices_or_sections", "indices", "sections"})
        if (c.has(name))
            return c.is_list(name) ? split_at(c.integers(name)) : split_at(c.integer(name));
    return split_at(c.integer("indices_or_sections"));
}

void name_views(NamedOps& ops) {
    ops["view"] = [](Call& c) {
        if (c.has("dtype")) throw ValueError("argument dtype is not supported");
        return view(c.x(0), c.dims({"size", "shape"}));
    };
    ops["reshape"] = [](Call& c) { return reshape(c.x(0), c.dims({"shape", "size"})); };
    ops["flatten"] = [](Call& c) {
        return flatten(c.x(0), c.integer("start_dim", 0), c.integer("end_dim", -1));
    };
    ops["unflatten"] = [](Call& c) {
        return unflatten(c.x(0), c.integer("dim"), c.dims({"sizes", "unflattened_size"}));
    };
    ops["transpose"] = [](Call& c) {
        return transpose(c.x(0), c.integer("dim0"), c.integer("dim1"));
    };
    ops["swapdims"] = [](Call& c) {
        return transpose(c.x(0), c.integer("dim0"), c.integer("dim1"));
    };
    ops["swapaxes"] = [](Call& c) {
        return swapaxes(c.x(0), c.integer("axis0"), c.integer("axis1"));
    };
    ops["t"] = [](Call& c) { return t(c.x(0)); };
    ops["adjoint"] = [](Call& c) { return transpose(c.x(0), -2, -1); };
    ops["permute"] = [](Call& c) { return permute(c.x(0), c.dims("dims")); };
    ops["movedim"] = [](Call& c) {
        return movedim(c.x(0), c.dims("source"), c.dims("destination"));
    };
    ops["expand"] = [](Call& c) {
        c.ignore({"implicit"});
        return expand(c.x(0), c.dims({"size", "sizes"}));
    };
    ops["broadcast_to"] = [](Call& c) { return broadcast_to(c.x(0), c.dims({"size", "shape"})); };
    ops["broadcast_tensors"] = [](Call& c) { return broadcast_tensors(c.tensors()); };
    ops["view_as"] = [](Call& c) { return view_as(c.x(0), c.x(1)); };
    ops["reshape_as"] = [](Call& c) { return reshape_as(c.x(0), c.x(1)); };
    ops["expand_as"] = [](Call& c) { return expand_as(c.x(0), c.x(1)); };
    ops["sum_to_size"] = [](Call& c) { return sum_to(c.x(0), c.dims("size")); };
    ops["ravel"] = [](Call& c) { return ravel(c.x(0)); };
    ops["squeeze"] = [](Call& c) {
        if (!c.has("dim")) return squeeze(c.x(0));
        Tensor x = c.x(0);
        std::set<int> dims;
        for (const std::int64_t dim : c.dims("dim")) dims.insert(wrap_dim("squeeze", dim, x.dim()));
        for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) x = squeeze(x, *dim);
        return x;
    };
    ops["unsqueeze"] = [](Call& c) { return unsqueeze(c.x(0), c.integer("dim")); };
    ops["narrow"] = [](Call& c) {
        const std::int64_t start = c.has("start") ? c.integer("start") : c.x(1).item_int();
        return narrow(c.x(0), c.integer("dim"), start, c.integer("length"));
    };
    ops["select"] = [](Call& c) { return select(c.x(0), c.integer("dim"), c.integer("index")); };
    ops["slice"] = [](Call& c) {
        return slice(c.x(0), c.integer("dim", 0), c.integer("start", 0),
                     c.integer("end", INT64_MAX), c.integer("step", 1));
    };
    ops["diagonal"] = [](Call& c) {
        return diagonal(c.x(0), c.integer("offset", 0), c.integer("dim1", 0), c.integer("dim2", 1));
    };
    ops["linalg.diagonal"] = [](Call& c) {
        return diagonal(c.x(0), c.integer("offset", 0), c.integer("dim1", -2),
                        c.integer("dim2", -1));
    };
}

void name_parts(NamedOps& ops) {
    ops["split"] = [](Call& c) {
        const std::int64_t dim = c.integer("dim", 0);
        for (const char* name : {"split_size_or_sections", "split_size", "split_sizes"})
            if (c.has(name))
                return c.is_list(name) ? split(c.x(0), c.dims(name), dim)
                                       : split(c.x(0), c.integer(name), dim);
        return split(c.x(0), c.integer("split_size_or_sections"), dim);
    };
    ops["chunk"] = [](Call& c) { return chunk(c.x(0), c.integer("chunks"), c.integer("dim", 0)); };
    ops["unbind"] = [](Call& c) { return unbind(c.x(0), c.integer("dim", 0)); };
    ops["tensor_split"] = [](Call& c) {
        const std::int64_t dim = c.integer("dim", 0);
        if (c.size() > 1 && c.x(1).dim() == 0)
            return Outputs(tensor_split(c.x(0), c.x(1).item_int(), dim));
        if (c.size() > 1) {
            std::vector<std::int64_t> at;
            for (const double i : c.x(1).to_vector()) at.push_back(static_cast<std::int64_t>(i));
            return Outputs(tensor_split(c.x(0), at, dim));
        }
        return split_tensor(c, [&](const auto& at) { return tensor_split(c.x(0), at, dim); });
    };
    ops["hsplit"] = [](Call& c) {
        return split_tensor(c, [&](const auto& at) { return hsplit(c.x(0), at); });
    };
    ops["vsplit"] = [](Call& c) {
        return split_tensor(c, [&](const auto& at) { return vsplit(c.x(0), at); });
    };
    ops["dsplit"] = [](Call& c) {
        return split_tensor(c, [&](const auto& at) { return dsplit(c.x(0), at); });
    };
    ops["cat"] = [](Call& c) { return cat(c.tensors(), c.integer("dim", 0)); };
    ops["stack"] = [](Call& c) { return stack(c.tensors(), c.integer("dim", 0)); };
    using Join = Tensor (*)(const std::vector<Tensor>&);
    const std::pair<const char*, Join> joins[] = {{"hstack", hstack},
                                                  {"vstack", vstack},
                                                  {"dstack", dstack},
                                                  {"column_stack", column_stack},
                                                  {"block_diag", block_diag}};
    for (const auto& [name, join] : joins)
        ops[name] = [join = join](Call& c) { return join(c.tensors()); };
    // If the input is a list of tensors, the result is a list.
    using AtLeast = Tensor (*)(const Tensor&);
    const std::pair<const char*, AtLeast> functions[] = {
        {"atleast_1d", atleast_1d}, {"atleast_2d", atleast_2d}, {"atleast_3d", atleast_3d}};
    for (const auto& [name, f] : functions)
        ops[name] = [f = f](Call& c) {
            std::vector<Tensor> results;
            for (const Tensor& x : c.tensors()) results.push_back(f(x));
            return Outputs(results);
        };
}

void name_diagonals(NamedOps& ops) {
    ops["diag_embed"] = [](Call& c) {
        return diag_embed(c.x(0), c.integer("offset", 0), c.integer("dim1", -2),
                          c.integer("dim2", -1));
    };
    ops["diag"] = [](Call& c) { return diag(c.x(0), c.integer("diagonal", 0)); };
    ops["diagflat"] = [](Call& c) { return diagflat(c.x(0), c.integer("offset", 0)); };
    ops["trace"] = [](Call& c) { return trace(c.x(0)); };
    ops["tril"] = [](Call& c) { return tril(c.x(0), c.integer("diagonal", 0)); };
    ops["triu"] = [](Call& c) { return triu(c.x(0), c.integer("diagonal", 0)); };
}

UnfoldOptions unfold_options(Call& c) {
    return {.dilation = c.size2("dilation", 1),
            .padding = c.size2("padding", 0),
            .stride = c.size2("stride", 1)};
}

void name_windows(NamedOps& ops) {
    // Tensor.unfold has the arguments dimension, size and step; F.unfold has kernel_size.
    ops["unfold"] = [](Call& c) {
        if (c.has("kernel_size")) return unfold(c.x(0), c.size2("kernel_size"), unfold_options(c));
        const std::int64_t dim = c.has("dimension") ? c.integer("dimension") : c.integer("dim");
        return unfold(c.x(0), dim, c.integer("size"), c.integer("step"));
    };
    ops["fold"] = [](Call& c) {
        return fold(c.x(0), c.size2("output_size"), c.size2("kernel_size"), unfold_options(c));
    };
    ops["pad"] = [](Call& c) {
        const auto mode = c.one_of<PadMode>("mode", "constant",
                                            {{"constant", PadMode::constant},
                                             {"reflect", PadMode::reflect},
                                             {"replicate", PadMode::replicate},
                                             {"circular", PadMode::circular}});
        return pad(c.x(0), c.dims("pad"), mode, c.scalar("value", 0));
    };
    ops["constant_pad_nd"] = [](Call& c) {
        return pad(c.x(0), c.dims("pad"), PadMode::constant, c.scalar("value", 0));
    };
    ops["pixel_shuffle"] = [](Call& c) {
        return pixel_shuffle(c.x(0), c.integer("upscale_factor"));
    };
    ops["pixel_unshuffle"] = [](Call& c) {
        return pixel_unshuffle(c.x(0), c.integer("downscale_factor"));
    };
    ops["channel_shuffle"] = [](Call& c) { return channel_shuffle(c.x(0), c.integer("groups")); };
}

void name_orders(NamedOps& ops) {
    ops["flip"] = [](Call& c) { return flip(c.x(0), c.dims({"dims", "dim"})); };
    ops["fliplr"] = [](Call& c) { return fliplr(c.x(0)); };
    ops["flipud"] = [](Call& c) { return flipud(c.x(0)); };
    ops["roll"] = [](Call& c) {
        return roll(c.x(0), c.dims("shifts"), c.has("dim") ? c.dims("dim") : c.dims("dims", {}));
    };
    ops["rot90"] = [](Call& c) {
        return rot90(c.x(0), c.integer("k", 1), c.dims("dims", Dims{0, 1}));
    };
    ops["repeat"] = [](Call& c) {
        return repeat(c.x(0), c.dims({"repeats", "repeat", "sizes", "size"}));
    };
    ops["tile"] = [](Call& c) { return tile(c.x(0), c.dims({"dims", "reps"})); };
    ops["repeat_interleave"] = [](Call& c) {
        c.ignore({"output_size"});
        const std::optional<std::int64_t> dim = c.maybe_integer("dim");
        if (c.is_list("repeats")) {
            const std::vector<std::int64_t> repeats = c.integers("repeats");
            return repeat_interleave(c.x(0), tensor(repeats), dim);
        }
        if (c.has("repeats")) return repeat_interleave(c.x(0), c.integer("repeats"), dim);
        if (c.size() > 1) return repeat_interleave(c.x(0), c.x(1), dim);
        // The result has x[i] copies of each position i.
        return repeat_interleave(arange(c.x(0).numel()), c.x(0));
    };
}

}  // namespace

void add_shaping_ops(NamedOps& ops) {
    name_views(ops);
    name_parts(ops);
    name_diagonals(ops);
    name_windows(ops);
    name_orders(ops);
}

}  // namespace axle::tests
