#include "data/loading/collate.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/ops.h"
#include "data/loading/collate_columns.h"

namespace axle::data {

std::string error_prefix(const char* who, const std::string& name) {
    return name.empty() ? str(who, ": ") : str(who, ": ", name, ": ");
}

std::string sample_pair(std::size_t i) { return str(" (samples 0 and ", i, " of the batch)"); }

bool is_plain(const Tensor& t) {
    return t.device().is_cpu() && t.is_contiguous() && !t.requires_grad();
}

// Stacks the tensors of a column. Copies bytes if possible, which is fast for many small samples.
Tensor stack_column(const char* who, const Column& column, const std::string& name) {
    const Tensor& first = column[0]->tensor();
    bool all_plain = true;
    for (std::size_t i = 0; i < column.size(); ++i) {
        const Tensor& t = column[i]->tensor();
        if (t.shape() != first.shape())
            throw ShapeError(str(
                error_prefix(who, name), "different shapes: ", first.shape(), " and ", t.shape(),
                sample_pair(i),
                std::string_view(who) == "collate" ? "; padding_collate() pads dimension 0" : ""));
        if (t.dtype() != first.dtype())
            throw ValueError(str(error_prefix(who, name), "different dtypes: ", first.dtype(),
                                 " and ", t.dtype(), sample_pair(i)));
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
            str(error_prefix(who, name),
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

namespace {

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

// Collates columns of one batch.
class Collator {
  public:
    Collator(const char* who, const StackTensors& stack) : who_(who), stack_(stack) {}
    Tree collate(const Column& column, const std::string& name, int depth) const;

  private:
    [[noreturn]] void throw_error(const std::string& name, const std::string& what) const {
        throw ValueError(error_prefix(who_, name) + what);
    }
    Tree lists(const Column& column, const std::string& name, int depth) const;
    Tree maps(const Column& column, const std::string& name, int depth) const;

    const char* who_;
    const StackTensors& stack_;
};

Tree Collator::lists(const Column& column, const std::string& name, int depth) const {
    const std::size_t length = column[0]->size();
    for (std::size_t i = 1; i < column.size(); ++i)
        if (column[i]->size() != length)
            throw_error(name, str("lists of different lengths: ", length, " and ",
                                  column[i]->size(), sample_pair(i)));
    Tree result = Tree::list();
    Column member(column.size());
    for (std::size_t k = 0; k < length; ++k) {
        for (std::size_t i = 0; i < column.size(); ++i) member[i] = &column[i]->elements()[k];
        result.push_back(collate(member, str(name, "[", k, "]"), depth + 1));
    }
    return result;
}

Tree Collator::maps(const Column& column, const std::string& name, int depth) const {
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
            {key, collate(member, name.empty() ? key : str(name, ".", key), depth + 1)});
    }
    return result;
}

Tree Collator::collate(const Column& column, const std::string& name, int depth) const {
    if (depth > kMaxTreeDepth)
        throw_error("", str("the samples are nested deeper than ", kMaxTreeDepth, " levels"));
    if (all_of(column, &Tree::is_tensor)) return stack_(column, name);
    if (all_of(column, &Tree::is_integer)) return tensor_of<std::int64_t>(column, &Tree::integer);
    if (all_of(column, &Tree::is_number)) return tensor_of<double>(column, &Tree::number);
    if (all_of(column, &Tree::is_boolean)) return tensor_of<bool>(column, &Tree::boolean);
    if (all_of(column, &Tree::is_map)) return maps(column, name, depth);
    if (all_of(column, &Tree::is_list)) return lists(column, name, depth);
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

Tree collate_columns(const char* who, std::span<const Tree> samples, const StackTensors& stack) {
    if (samples.empty())
        throw ValueError(str(who, ": the batch must have at least one sample: it has none"));
    Column column;
    column.reserve(samples.size());
    for (const Tree& sample : samples) column.push_back(&sample);
    return Collator(who, stack).collate(column, "", 0);
}

Tree collate(std::span<const Tree> samples) {
    return collate_columns("collate", samples, [](const Column& column, const std::string& name) {
        return stack_column("collate", column, name);
    });
}

}  // namespace axle::data
