#include "data/loading/padding.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/check.h"
#include "core/ops.h"
#include "data/loading/collate_columns.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

struct Padding {
    std::int64_t length;  // the size of dimension 0 with padding
    Scalar value;
    PaddingSide side;
};

Shape shape_of_row(const Tensor& t) {
    Shape shape = t.shape();
    if (!shape.empty()) shape.erase(0);
    return shape;
}

std::int64_t longest(const std::vector<Tensor>& tensors) {
    std::int64_t length = 0;
    for (const Tensor& t : tensors) length = std::max(length, t.size(0));
    return length;
}

// Returns a batch of the tensors, padded along dimension 0. They must have rows of the same shape,
// and the same dtype.
Tensor padded(const std::vector<Tensor>& tensors, const Padding& padding) {
    if (!std::all_of(tensors.begin(), tensors.end(), is_plain)) {
        std::vector<Tensor> same;
        same.reserve(tensors.size());
        for (const Tensor& t : tensors) {
            Shape missing = t.shape();
            missing[0] = padding.length - t.size(0);
            const Tensor filler =
                full(missing, padding.value, {.dtype = t.dtype(), .device = t.device()});
            same.push_back(cat(padding.side == PaddingSide::left ? std::vector{filler, t}
                                                                 : std::vector{t, filler}));
        }
        return stack(same);
    }
    // Copies bytes, which is fast for many small samples.
    const DType dtype = tensors[0].dtype();
    const Shape row = shape_of_row(tensors[0]);
    Shape shape = row;
    shape.insert(0, padding.length);
    shape.insert(0, std::ssize(tensors));
    Tensor batch = full(shape, padding.value, {.dtype = dtype});
    const auto row_bytes = numel(row) * size_of(dtype);
    auto* to = static_cast<std::byte*>(batch.raw_data());
    for (const Tensor& t : tensors) {
        const auto bytes = static_cast<std::size_t>(t.size(0) * row_bytes);
        const std::int64_t before =
            padding.side == PaddingSide::left ? padding.length - t.size(0) : 0;
        if (bytes > 0) std::memcpy(to + before * row_bytes, t.raw_data(), bytes);
        to += padding.length * row_bytes;
    }
    return batch;
}

Tensor pad_column(const Column& column, const std::string& name,
                  const PaddingCollateOptions& options) {
    constexpr const char* kWho = "padding_collate";
    const Tensor& first = column[0]->tensor();
    std::vector<Tensor> tensors;
    tensors.reserve(column.size());
    for (std::size_t i = 0; i < column.size(); ++i) {
        const Tensor& t = column[i]->tensor();
        if (t.dim() != first.dim() || shape_of_row(t) != shape_of_row(first))
            throw ShapeError(str(error_prefix(kWho, name),
                                 "shapes differ in more than dimension 0: ", first.shape(), " and ",
                                 t.shape(), sample_pair(i)));
        if (t.dtype() != first.dtype())
            throw ValueError(str(error_prefix(kWho, name), "different dtypes: ", first.dtype(),
                                 " and ", t.dtype(), sample_pair(i)));
        tensors.push_back(t);
    }
    if (first.dim() == 0) return stack_column(kWho, column, name);
    if (first.dim() == kMaxDims)
        throw ShapeError(
            str(error_prefix(kWho, name),
                "cannot stack tensors with the maximum number of dimensions: ", first.shape()));
    const std::int64_t multiple = options.pad_to_multiple_of, length = longest(tensors);
    Padding padding{.length = length == 0 ? 0 : ((length - 1) / multiple + 1) * multiple,
                    .value = options.padding_value,
                    .side = options.padding_side};
    for (const auto& [member, value] : options.padding_values)
        if (member == name) padding.value = value;
    return padded(tensors, padding);
}

// Throws ValueError unless each name in padding_values is one of `names`.
void check_names(const PaddingCollateOptions& options, const std::vector<std::string>& names) {
    for (const auto& [member, value] : options.padding_values) {
        if (std::find(names.begin(), names.end(), member) != names.end()) continue;
        std::string all;
        for (const std::string& name : names) all += str(all.empty() ? "'" : ", '", name, "'");
        throw ValueError(str("padding_collate: padding_values has the name '", member,
                             "', but the tensors of the batch are ", all.empty() ? "none" : all));
    }
}

}  // namespace

Tensor pad_sequence(const std::vector<Tensor>& sequences, const PadSequenceOptions& options) {
    if (sequences.empty())
        throw ValueError("pad_sequence: needs at least one sequence: the list is empty");
    const Tensor& first = sequences[0];
    for (std::size_t i = 0; i < sequences.size(); ++i) {
        const Tensor& t = sequences[i];
        check_device("pad_sequence", {&first, &t});
        if (t.dim() == 0)
            throw ShapeError(
                str("pad_sequence: each sequence must have at least one dimension: "
                    "sequence ",
                    i, " is 0-d"));
        if (t.dim() != first.dim() || shape_of_row(t) != shape_of_row(first))
            throw ShapeError(
                str("pad_sequence: shapes differ in more than dimension 0: sequence 0 "
                    "is ",
                    first.shape(), ", sequence ", i, " is ", t.shape()));
        if (t.dtype() != first.dtype())
            throw DTypeError(str("pad_sequence: dtypes differ: sequence 0 is ", first.dtype(),
                                 ", sequence ", i, " is ", t.dtype()));
    }
    if (first.dim() == kMaxDims)
        throw ShapeError(str("pad_sequence: sequences can have at most ", kMaxDims - 1,
                             " dimensions, because stacking adds one: sequence 0 is ",
                             first.shape()));
    const Tensor batch =
        padded(sequences, {longest(sequences), options.padding_value, options.padding_side});
    return options.batch_first ? batch : batch.transpose(0, 1).contiguous();
}

Collate padding_collate(PaddingCollateOptions options) {
    if (options.pad_to_multiple_of < 1)
        throw ValueError(str("padding_collate: pad_to_multiple_of must be positive: ",
                             options.pad_to_multiple_of));
    return [options = std::move(options)](std::span<const Tree> samples) {
        std::vector<std::string> names;
        Tree batch = collate_columns("padding_collate", samples,
                                     [&](const Column& column, const std::string& name) {
                                         names.push_back(name);
                                         return pad_column(column, name, options);
                                     });
        check_names(options, names);
        return batch;
    };
}

}  // namespace axle::data
