#include "core/tree/tree_utils.h"

#include <algorithm>
#include <memory>
#include <span>

#include "core/files/file.h"
#include "core/ops.h"
#include "core/tree/tree_checks.h"
#include "kernels/error.h"

namespace axle {
namespace {

constexpr const char* kRoot = "batch";

using tree::check_depth;

Tree map_at(const char* op, const Tree& tree, const LeafFunction& f, const std::string& path,
            int depth) {
    check_depth(op, depth);
    if (tree.is_list()) {
        Tree::List elements;
        elements.reserve(tree.size());
        for (const Tree& element : tree.elements())
            elements.push_back(
                map_at(op, element, f, member_path(path, elements.size()), depth + 1));
        return elements;
    }
    if (tree.is_map()) {
        Tree result = Tree::map();
        result.entries().reserve(tree.size());
        for (const auto& [key, value] : tree.entries())
            result.entries().push_back(
                {key, map_at(op, value, f, member_path(path, key), depth + 1)});
        return result;
    }
    if (tree.is_null() && depth > 0) return tree;
    return f(tree, path);
}

[[noreturn]] void throw_not_tensor(const char* op, const Tree& leaf, const std::string& path) {
    throw ValueError(str(op, ": ", path, " is ", name_of(leaf.kind()), ", not a tensor"));
}

// Returns the tree with every tensor replaced by f(tensor, path). All other leaves are kept.
template <class F>
Tree map_tensors_at(const char* op, const Tree& tree, F&& f) {
    return map_leaves(op, tree, [&](const Tree& leaf, const std::string& path) -> Tree {
        if (!leaf.is_tensor()) return leaf;
        return f(leaf.tensor(), path);
    });
}

// Returns element `index` of each list.
std::vector<const Tree*> members(const std::vector<const Tree*>& trees, std::size_t index) {
    std::vector<const Tree*> all;
    for (const Tree* tree : trees) all.push_back(&tree->elements()[index]);
    return all;
}

Tensor concatenate_tensors(const std::vector<const Tree*>& trees, std::int64_t dim,
                           const std::string& path) {
    std::vector<Tensor> tensors;
    for (const Tree* tree : trees) tensors.push_back(tree->tensor());
    const Tensor& first = tensors[0];
    if (dim < -first.dim() || dim >= first.dim())
        throw ShapeError(
            str("concatenate: ", path, " has no dimension ", dim, ": it is ", first.shape()));
    const std::int64_t joined = dim < 0 ? dim + first.dim() : dim;
    for (std::size_t i = 1; i < tensors.size(); ++i) {
        const Tensor& other = tensors[i];
        bool fits = other.dim() == first.dim();
        for (int d = 0; fits && d < first.dim(); ++d)
            fits = d == joined || other.shape()[d] == first.shape()[d];
        if (!fits)
            throw ShapeError(str("concatenate: the shape of ", path, " differs outside dimension ",
                                 dim, ": ", first.shape(), " in item 0 and ", other.shape(),
                                 " in item ", i));
        if (other.device() != first.device())
            throw DeviceError(str("concatenate: ", path, " is on ", first.device(),
                                  " in item 0 and on ", other.device(), " in item ", i));
    }
    return cat(tensors, joined);
}

Tree concatenate_at(const std::vector<const Tree*>& trees, std::int64_t dim,
                    const std::string& path, int depth) {
    check_depth("concatenate", depth);
    const Tree& first = *trees[0];
    for (std::size_t i = 1; i < trees.size(); ++i) {
        const Tree& other = *trees[i];
        if (other.kind() != first.kind())
            throw ValueError(str("concatenate: ", path, " is ", name_of(first.kind()),
                                 " in item 0 and ", name_of(other.kind()), " in item ", i));
        if ((first.is_list() || first.is_map()) && other.size() != first.size())
            throw ValueError(str("concatenate: the numbers of members of ", path, " differ: ",
                                 first.size(), " in item 0 and ", other.size(), " in item ", i));
    }
    if (first.is_tensor()) return concatenate_tensors(trees, dim, path);
    if (first.is_list()) {
        Tree result = Tree::list();
        for (std::size_t k = 0; k < first.size(); ++k)
            result.push_back(
                concatenate_at(members(trees, k), dim, member_path(path, k), depth + 1));
        return result;
    }
    if (first.is_map()) {
        Tree result = Tree::map();
        for (const auto& [key, value] : first.entries()) {
            std::vector<const Tree*> column;
            for (std::size_t i = 0; i < trees.size(); ++i) {
                column.push_back(trees[i]->find(key));
                if (column.back() == nullptr)
                    throw ValueError(
                        str("concatenate: ", member_path(path, key), " is missing in item ", i));
            }
            result.entries().push_back(
                {key, concatenate_at(column, dim, member_path(path, key), depth + 1)});
        }
        return result;
    }
    if (trees.size() > 1 && !(first.is_null() && depth > 0))
        throw ValueError(str("concatenate: ", path, " is ", name_of(first.kind()),
                             ", not a tensor, and cannot be merged from ", trees.size(), " items"));
    return first;
}

// Follows the first member that is not null until it reaches a leaf, or a list or map without such
// a member. Returns this value, and appends its position to `path`.
const Tree& first_leaf(const char* op, const Tree& tree, std::string& path, int depth = 0) {
    check_depth(op, depth);
    if (tree.is_list()) {
        for (std::size_t i = 0; i < tree.size(); ++i)
            if (const Tree& element = tree.elements()[i]; !element.is_null()) {
                path = member_path(path, i);
                return first_leaf(op, element, path, depth + 1);
            }
    } else if (tree.is_map()) {
        for (const auto& [key, value] : tree.entries())
            if (!value.is_null()) {
                path = member_path(path, key);
                return first_leaf(op, value, path, depth + 1);
            }
    }
    return tree;
}

Tree send_at(const Tree& tree, Device device, bool non_blocking,
             const std::vector<std::string>& skip_keys, int depth) {
    check_depth("send_to_device", depth);
    const auto send = [&](const Tree& member) {
        return send_at(member, device, non_blocking, skip_keys, depth + 1);
    };
    if (tree.is_tensor()) return tree.tensor().to(device, non_blocking);
    if (tree.is_list()) {
        Tree::List elements;
        for (const Tree& element : tree.elements()) elements.push_back(send(element));
        return elements;
    }
    if (!tree.is_map()) return tree;
    Tree result = Tree::map();
    for (const auto& [key, value] : tree.entries()) {
        const bool skip = std::find(skip_keys.begin(), skip_keys.end(), key) != skip_keys.end();
        result.entries().push_back({key, skip ? value : send(value)});
    }
    return result;
}

// Converts the values of a tensor, in row-major order, to nested lists.
template <class T>
Tree nested(std::span<const T> values, std::span<const std::int64_t> shape) {
    if (shape.empty()) return values[0];
    Tree list = Tree::list();
    const auto rows = static_cast<std::size_t>(shape[0]);
    const std::size_t stride = rows == 0 ? 0 : values.size() / rows;
    for (std::size_t i = 0; i < rows; ++i)
        list.push_back(nested(values.subspan(i * stride, stride), shape.subspan(1)));
    return list;
}

Tree numbers_of(const Tensor& x) {
    const std::span<const std::int64_t> shape(x.shape().begin(), x.shape().end());
    if (x.dtype() == i64) {
        const Tensor host = x.detach().to(Device::cpu()).contiguous();
        return nested(std::span<const std::int64_t>(host.data<std::int64_t>(),
                                                    static_cast<std::size_t>(host.numel())),
                      shape);
    }
    const std::vector<double> values = x.detach().to_vector();
    if (x.dtype() == boolean) {
        const auto flags = std::make_unique<bool[]>(values.size());
        std::transform(values.begin(), values.end(), flags.get(), [](double v) { return v != 0; });
        return nested(std::span<const bool>(flags.get(), values.size()), shape);
    }
    if (!is_integral(x.dtype())) return nested(std::span<const double>(values), shape);
    const std::vector<std::int64_t> integers(values.begin(), values.end());
    return nested(std::span<const std::int64_t>(integers), shape);
}

}  // namespace

const char* name_of(Tree::Kind kind) {
    static constexpr const char* names[] = {"null",      "a tensor", "an integer", "a number",
                                            "a boolean", "a string", "a list",     "a map"};
    return names[static_cast<std::size_t>(kind)];
}

std::string member_path(const std::string& path, const std::string& key) {
    return path + "[\"" + printable(key) + "\"]";
}
std::string member_path(const std::string& path, std::size_t index) {
    return str(path, '[', index, ']');
}

Tree map_leaves(const char* op, const Tree& tree, const LeafFunction& f) {
    return map_at(op, tree, f, kRoot, 0);
}

Tree recursively_apply(const std::function<Tree(const Tree&)>& f, const Tree& tree,
                       const std::function<bool(const Tree&)>& test, bool error_on_other_type) {
    constexpr const char* op = "recursively_apply";
    return map_leaves(op, tree, [&](const Tree& leaf, const std::string& path) {
        if (test ? test(leaf) : leaf.is_tensor()) return f(leaf);
        if (error_on_other_type)
            throw ValueError(str(op, ": ", path, " is ", name_of(leaf.kind()),
                                 test ? ", for which test() returns false" : ", not a tensor",
                                 "; pass error_on_other_type = false to keep it"));
        return leaf;
    });
}

Tree concatenate(const std::vector<Tree>& trees, std::int64_t dim) {
    if (trees.empty()) throw ValueError("concatenate: needs at least 1 tree: the list is empty");
    std::vector<const Tree*> items;
    for (const Tree& tree : trees) items.push_back(&tree);
    return concatenate_at(items, dim, kRoot, 0);
}

Tree slice_tensors(const Tree& tree, std::int64_t begin, std::int64_t end) {
    return map_tensors_at("slice_tensors", tree, [&](const Tensor& t, const std::string& path) {
        if (t.dim() == 0) throw ShapeError(str("slice_tensors: ", path, " is 0-d: it has no rows"));
        return t.slice(0, begin, end);
    });
}

std::int64_t find_batch_size(const Tree& tree) {
    constexpr const char* op = "find_batch_size";
    std::string path = kRoot;
    const Tree& leaf = first_leaf(op, tree, path);
    if (leaf.is_list() || leaf.is_map())
        throw ValueError(str(op, ": ", path, " is ", name_of(leaf.kind()), " without a tensor"));
    if (!leaf.is_tensor()) throw_not_tensor(op, leaf, path);
    if (leaf.tensor().dim() == 0) throw ValueError(str(op, ": ", path, " is 0-d: it has no rows"));
    return leaf.tensor().shape()[0];
}

std::optional<std::int64_t> ignorant_find_batch_size(const Tree& tree) {
    std::string path = kRoot;
    const Tree& leaf = first_leaf("ignorant_find_batch_size", tree, path);
    if (!leaf.is_tensor() || leaf.tensor().dim() == 0) return std::nullopt;
    return leaf.tensor().shape()[0];
}

std::optional<Device> find_device(const Tree& tree) {
    std::optional<Device> device;
    for_each_tensor(tree, [&](const Tensor& t) {
        if (!device) device = t.device();
    });
    return device;
}

Tree send_to_device(const Tree& tree, Device device, bool non_blocking,
                    const std::vector<std::string>& skip_keys) {
    return send_at(tree, device, non_blocking, skip_keys, 0);
}

Tree convert_to_fp32(const Tree& tree) {
    return map_tensors(tree, [](const Tensor& t) { return is_half(t.dtype()) ? t.to(f32) : t; });
}

Tree get_data_structure(const Tree& tree) {
    return map_tensors(tree, [](const Tensor& t) {
        return empty(t.shape(), {.dtype = t.dtype(), .device = Device::meta()});
    });
}

Tree initialize_tensors(const Tree& structure) {
    return map_tensors(structure,
                       [](const Tensor& t) { return empty(t.shape(), {.dtype = t.dtype()}); });
}

Tree get_shape(const Tree& tree) {
    return map_tensors(tree, [](const Tensor& t) {
        Tree sizes = Tree::list();
        for (const std::int64_t size : t.shape()) sizes.push_back(size);
        return sizes;
    });
}

Tree listify(const Tree& tree) { return map_tensors(tree, numbers_of); }

Tree pad_input_tensors(const Tree& tree, std::int64_t batch_size, int num_processes,
                       std::int64_t dim) {
    constexpr const char* op = "pad_input_tensors";
    if (batch_size < 0 || num_processes < 1)
        throw ValueError(
            str(op, ": batch_size must be at least 0 and num_processes at least 1: batch_size ",
                batch_size, ", num_processes ", num_processes));
    const std::int64_t missing = (num_processes - batch_size % num_processes) % num_processes;
    return map_leaves(op, tree, [&](const Tree& leaf, const std::string& path) -> Tree {
        if (!leaf.is_tensor()) throw_not_tensor(op, leaf, path);
        const Tensor& t = leaf.tensor();
        if (dim < -t.dim() || dim >= t.dim() || t.size(dim) != batch_size)
            throw ShapeError(str(op, ": dimension ", dim, " of ", path, " must have size ",
                                 batch_size, ": its shape is ", t.shape()));
        if (missing == 0) return t;
        Shape shape = t.shape();
        const Tensor last = t.narrow(dim, batch_size - 1, 1);
        shape[static_cast<int>(dim < 0 ? dim + t.dim() : dim)] = missing;
        return cat({t, last.expand(shape)}, dim);
    });
}

}  // namespace axle
