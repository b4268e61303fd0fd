#include "data/loading/collate.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/ops.h"

namespace axle::data {
namespace {

// The values of one member in all samples. The name of the member in error messages is for example
// "image.mask" or "boxes[0]"; the name of a complete sample is "".
using Column = std::vector<const Tree*>;

std::string prefix(const std::string& name) { return name.empty() ? "" : name + ": "; }

std::string sample_pair(std::size_t i) { return str(" (samples 0 and ", i, " of the batch)"); }

[[noreturn]] void throw_error(const std::string& name, const std::string& what) {
    throw ValueError(str("collate: ", prefix(name), what));
}

bool is_plain(const Tensor& t) {
    return t.device().is_cpu() && t.is_contiguous() && !t.requires_grad();
}

// Stacks the tensors of a column. Copies bytes if possible, which is fast for many small samples.
Tensor stack_column(const Column& column, const std::string& name) {
    const Tensor& first = column[0]->tensor();
    bool all_plain = true;
    for (std::size_t i = 0; i < column.size(); ++i) {
        const Tensor& t = column[i]->tensor();
        if (t.shape() != first.shape())
            throw ShapeError(str("collate: ", prefix(name), "different shapes: ", first.shape(),
                                 " and ", t.shape(), sample_pair(i)));
        if (t.dtype() != first.dtype())
            throw_error(
                name, str("different dtypes: ", first.dtype(), " and ", t.dtype(), sample_pair(i)));
        all_plain = all_plain && is_plain(t);
    }
    if (!all_plain) {
        std::vector<Tensor> tensors;
        tensors.reserve(column.size());
        for (const Tree* tree : column) tensors.push_back(tree->tensor());
        return stack(tensors);
    }
    Shape shape = first.shape();
    if (shape.size() == kMaxDims)
        throw ShapeError(
            str("collate: ", prefix(name),
                "cannot stack tensors with the maximum number of dimensions: ", first.shape()));
    shape.insert(0, static_cast<std::int64_t>(column.size()));
    Tensor batch = empty(shape, {.dtype = first.dtype()});
    const auto bytes = static_cast<std::size_t>(first.numel() * size_of(first.dtype()));
    auto* to = static_cast<std::byte*>(batch.raw_data());
    if (bytes == 0) return batch;
    for (const Tree* tree : column) {
        std::memcpy(to, tree->tensor().raw_data(), bytes);
        to += bytes;
    }
    return batch;
}

bool all_of(const Column& column, bool (Tree::*test)() const) {
    return std::all_of(column.begin(), column.end(), [&](const Tree* t) { return (t->*test)(); });
}

template <class T>
Tensor tensor_of(const Column& column, T (Tree::*value)() const) {
    Tensor result = empty({static_cast<std::int64_t>(column.size())}, {.dtype = dtype_of<T>});
    T* to = result.data<T>();
    for (const Tree* tree : column) *to++ = (tree->*value)();
    return result;
}

Tree collate_column(const Column& column, const std::string& name, int depth);

Tree collate_lists(const Column& column, const std::string& name, int depth) {
    const std::size_t length = column[0]->size();
    for (std::size_t i = 1; i < column.size(); ++i)
        if (column[i]->size() != length)
            throw_error(name, str("lists of different lengths: ", length, " and ",
                                  column[i]->size(), sample_pair(i)));
    Tree result = Tree::list();
    Column member(column.size());
    for (std::size_t k = 0; k < length; ++k) {
        for (std::size_t i = 0; i < column.size(); ++i) member[i] = &column[i]->elements()[k];
        result.push_back(collate_column(member, str(name, "[", k, "]"), depth + 1));
    }
    return result;
}

Tree collate_maps(const Column& column, const std::string& name, int depth) {
    const Tree& first = *column[0];
    for (std::size_t i = 1; i < column.size(); ++i)
        for (const auto& [key, value] : column[i]->entries())
            if (!first.contains(key))
                throw_error(name,
                            str("only one of two samples has the key '", key, "'", sample_pair(i)));
    Tree result = Tree::map();
    Column member(column.size());
    for (const auto& [key, value] : first.entries()) {
        for (std::size_t i = 0; i < column.size(); ++i) {
            member[i] = column[i]->find(key);
            if (member[i] == nullptr)
                throw_error(name,
                            str("only one of two samples has the key '", key, "'", sample_pair(i)));
        }
        result.entries().push_back(
            {key, collate_column(member, name.empty() ? key : str(name, ".", key), depth + 1)});
    }
    return result;
}

Tree collate_column(const Column& column, const std::string& name, int depth) {
    if (depth > kMaxTreeDepth)
        throw_error("", str("the samples are nested deeper than ", kMaxTreeDepth, " levels"));
    if (all_of(column, &Tree::is_tensor)) return stack_column(column, name);
    if (all_of(column, &Tree::is_integer)) return tensor_of<std::int64_t>(column, &Tree::integer);
    if (all_of(column, &Tree::is_number)) return tensor_of<double>(column, &Tree::number);
    if (all_of(column, &Tree::is_boolean)) return tensor_of<bool>(column, &Tree::boolean);
    if (all_of(column, &Tree::is_map)) return collate_maps(column, name, depth);
    if (all_of(column, &Tree::is_list)) return collate_lists(column, name, depth);
    if (all_of(column, &Tree::is_string)) {
        Tree result = Tree::list();
        for (const Tree* text : column) result.push_back(*text);
        return result;
    }
    for (std::size_t i = 0; i < column.size(); ++i) {
        if (column[i]->is_null()) throw_error(name, str("sample ", i, " of the batch is null"));
        if (column[i]->kind() != column[0]->kind())
            throw_error(name,
                        str("different kinds: ", *column[0], " and ", *column[i], sample_pair(i)));
    }
    throw_error(name, "the batch has no samples");
}

}  // namespace

Tree collate(std::span<const Tree> samples) {
    if (samples.empty()) throw ValueError("collate: there are no samples in the batch");
    Column column;
    column.reserve(samples.size());
    for (const Tree& sample : samples) column.push_back(&sample);
    return collate_column(column, "", 0);
}

}  // namespace axle::data
