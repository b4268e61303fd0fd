#include <charconv>

#include "core/indexing.h"
#include "tests/cases/json/call.h"

namespace axle::tests {

namespace {

using nlohmann::json;

const std::map<std::string, IndexReduction> kReductionNames = {
    {"sum", IndexReduction::sum},      {"prod", IndexReduction::prod},
    {"mean", IndexReduction::mean},    {"amax", IndexReduction::amax},
    {"amin", IndexReduction::amin},    {"add", IndexReduction::sum},
    {"multiply", IndexReduction::prod}};

// Returns the number in a part of a slice such as "1:-1:2", or nothing if the part is empty.
std::optional<std::int64_t> slice_bound(const std::string& text) {
    if (text.empty()) return std::nullopt;
    std::int64_t bound = 0;
    const char* end = text.data() + text.size();
    if (std::from_chars(text.data(), end, bound).ptr != end)
        throw ValueError(str("argument index: not a slice: ", text));
    return bound;
}

// Returns an index of x[...]: an integer, null (a new dimension), "...", a slice such as "1:-1:2"
// or a list of integers.
TensorIndex as_index(const json& value) {
    if (value.is_null()) return None;
    if (value.is_number_integer()) return value.get<std::int64_t>();
    if (value.is_array()) return tensor(value.get<std::vector<std::int64_t>>());
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (text == "...") return Ellipsis;
    std::vector<std::string> parts = {""};
    for (const char letter : text)
        if (letter == ':')
            parts.emplace_back();
        else
            parts.back() += letter;
    if (parts.size() < 2 || parts.size() > 3)
        throw ValueError(str("argument index: not an index: ", text));
    return Slice(slice_bound(parts[0]), slice_bound(parts[1]),
                 parts.size() > 2 ? slice_bound(parts[2]) : std::nullopt);
}

// Returns the indices of x[...]. By default, they are the tensors of the second input, in which
// null selects all elements. The argument "index" lists the indices instead. Each text "tensor" in
// it is replaced by the next tensor of the second input.
std::vector<TensorIndex> indices_of(Call& c) {
    std::vector<Tensor> given = c.size() > 1 ? c.list(1) : std::vector<Tensor>();
    std::vector<TensorIndex> indices;
    if (!c.has("index") && !c.has("indices")) {
        for (const Tensor& index : given)
            indices.push_back(index.defined() ? TensorIndex(index) : TensorIndex(Slice()));
        return indices;
    }
    std::size_t next = 0;
    const json& value = c.value(c.has("index") ? "index" : "indices");
    for (const json& index : value.is_array() ? value : json::array({value})) {
        if (index != "tensor") {
            indices.push_back(as_index(index));
        } else if (next < given.size()) {
            indices.emplace_back(given[next++]);
        } else {
            throw ValueError("argument index: an index tensor is missing");
        }
    }
    return indices;
}

// Returns views of the columns of the positions [n, dimensions].
std::vector<Tensor> columns(const Tensor& positions) { return unbind(positions, 1); }

void name_masks(NamedOps& ops) {
    ops["nonzero"] = [](Call& c) {
        if (!c.flag("as_tuple", false)) return Outputs(nonzero(c.x(0)));
        return Outputs(columns(nonzero(atleast_1d(c.x(0)))));
    };
    ops["argwhere"] = [](Call& c) { return argwhere(c.x(0)); };
    ops["masked_select"] = [](Call& c) { return masked_select(c.x(0), c.x(1)); };
    ops["masked_scatter"] = [](Call& c) { return masked_scatter(c.x(0), c.x(1), c.x(2)); };
    ops["masked_fill"] = [](Call& c) {
        if (c.has("value")) return masked_fill(c.x(0), c.x(1), c.scalar("value"));
        if (c.x(2).dim() != 0) throw ValueError("input 2: expected a 0-d tensor");
        return where(c.x(1), to(c.x(2), c.x(0).dtype()), c.x(0));
    };
    ops["fill"] = [](Call& c) {
        const Tensor all = ones(c.x(0).shape(), {boolean});
        if (c.has("value")) return masked_fill(c.x(0), all, c.scalar("value"));
        return where(all, to(c.x(1), c.x(0).dtype()), c.x(0));
    };
    // An operand can be a number, in the argument input (or self) or other.
    ops["where"] = [](Call& c) {
        const char* first = c.has("self") ? "self" : "input";
        if (c.has(first) && c.has("other"))
            return Outputs(where(c.x(0), c.scalar(first), c.scalar("other")));
        if (c.has(first)) return Outputs(where(c.x(0), c.scalar(first), c.x(1)));
        if (c.has("other")) return Outputs(where(c.x(0), c.x(1), c.scalar("other")));
        if (c.size() == 1) return Outputs(columns(nonzero(atleast_1d(c.x(0)))));
        return Outputs(where(c.x(0), c.x(1), c.x(2)));
    };
    ops["isin"] = [](Call& c) {
        c.ignore({"assume_unique"});
        const bool invert = c.flag("invert", false);
        for (const char* name : {"test_elements", "test_element", "test"})
            if (c.has(name)) return isin(c.x(0), c.scalar(name), invert);
        for (const char* name : {"elements", "element"})
            if (c.has(name)) return isin(tensor(c.scalar(name)), c.x(0), invert);
        return isin(c.x(0), c.x(1), invert);
    };
    ops["index"] = [](Call& c) { return index(c.x(0), indices_of(c)); };
    ops["index_put"] = [](Call& c) {
        const bool accumulate = c.flag("accumulate", false);
        if (c.has("values"))
            return index_put(c.x(0), indices_of(c), full({}, c.scalar("values"), {c.x(0).dtype()}),
                             accumulate);
        return index_put(c.x(0), indices_of(c), c.x(2), accumulate);
    };
}

void name_scatters(NamedOps& ops) {
    ops["gather"] = [](Call& c) {
        c.ignore({"sparse_grad"});
        return gather(c.x(0), c.integer("dim"), c.x(1));
    };
    ops["scatter"] = [](Call& c) {
        const std::int64_t dim = c.integer("dim");
        const char* name = c.has("src") ? "src" : "value";
        if (!c.has("reduce"))
            return c.has(name) ? scatter(c.x(0), dim, c.x(1), c.scalar(name))
                               : scatter(c.x(0), dim, c.x(1), c.x(2));
        const auto reduce = c.one_of("reduce", "", kReductionNames);
        const Tensor src =
            c.has(name) ? full(c.x(1).shape(), c.scalar(name), {c.x(0).dtype()}) : c.x(2);
        return scatter_reduce(c.x(0), dim, c.x(1), src, reduce);
    };
    ops["scatter_add"] = [](Call& c) {
        return scatter_add(c.x(0), c.integer("dim"), c.x(1), c.x(2));
    };
    ops["scatter_reduce"] = [](Call& c) {
        return scatter_reduce(c.x(0), c.integer("dim"), c.x(1), c.x(2),
                              c.one_of("reduce", "", kReductionNames),
                              c.flag("include_self", true));
    };
    ops["take"] = [](Call& c) { return take(c.x(0), c.x(1)); };
    ops["put"] = [](Call& c) { return put(c.x(0), c.x(1), c.x(2), c.flag("accumulate", false)); };
    ops["take_along_dim"] = [](Call& c) {
        return take_along_dim(c.x(0), c.x(1), c.maybe_integer("dim"));
    };
    ops["embedding"] = [](Call& c) {
        // As in F.embedding, a negative padding_idx counts from the end. (In aten.embedding, it
        // means that there is no padding row.)
        c.ignore({"norm_type", "sparse"});
        c.support_only("scale_grad_by_freq", false);
        c.support_only("max_norm", nullptr);
        return embedding(c.x(0), c.x(1), c.maybe_integer("padding_idx"));
    };
    ops["one_hot"] = [](Call& c) {
        const std::int64_t classes = c.integer("num_classes", -1);
        return one_hot(c.x(0), classes == -1 ? max(c.x(0)).item_int() + 1 : classes);
    };
}

void name_slices(NamedOps& ops) {
    ops["index_select"] = [](Call& c) { return index_select(c.x(0), c.integer("dim"), c.x(1)); };
    ops["index_add"] = [](Call& c) {
        return index_add(c.x(0), c.integer("dim"), c.x(1), c.x(2), c.scalar("alpha", 1));
    };
    ops["index_copy"] = [](Call& c) {
        return index_copy(c.x(0), c.integer("dim"), c.x(1), c.x(2));
    };
    ops["index_fill"] = [](Call& c) {
        return c.has("value") ? index_fill(c.x(0), c.integer("dim"), c.x(1), c.scalar("value"))
                              : index_fill(c.x(0), c.integer("dim"), c.x(1), c.x(2));
    };
    ops["index_reduce"] = [](Call& c) {
        return index_reduce(c.x(0), c.integer("dim"), c.x(1), c.x(2),
                            c.one_of("reduce", "", kReductionNames), c.flag("include_self", true));
    };
    ops["select_scatter"] = [](Call& c) {
        return select_scatter(c.x(0), c.x(1), c.integer("dim"), c.integer("index"));
    };
    ops["slice_scatter"] = [](Call& c) {
        return slice_scatter(c.x(0), c.x(1), c.integer("dim", 0), c.integer("start", 0),
                             c.integer("end", INT64_MAX), c.integer("step", 1));
    };
    ops["diagonal_scatter"] = [](Call& c) {
        return diagonal_scatter(c.x(0), c.x(1), c.integer("offset", 0), c.integer("dim1", 0),
                                c.integer("dim2", 1));
    };
}

}  // namespace

void add_selection_ops(NamedOps& ops) {
    name_masks(ops);
    name_scatters(ops);
    name_slices(ops);
}

}  // namespace axle::tests
