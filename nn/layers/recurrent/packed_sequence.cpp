#include "nn/layers/recurrent/packed_sequence.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "nn/layers/recurrent/layer.h"

namespace axle::nn {
namespace {

using Lengths = std::vector<std::int64_t>;

// Returns the positions of the sequences by decreasing length; equal lengths keep their order.
Lengths sorted_order(const Lengths& lengths) {
    Lengths order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
    });
    return order;
}

Lengths inverse(const Lengths& order) {
    Lengths result(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
        result[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
    return result;
}

Tensor index_on(Device device, const Lengths& values) { return tensor(values).to(device); }

// Packs sequences. Row position(b, t) of `rows` is element t of sequence b. Throws ValueError
// unless there are sequences, their lengths are positive and, with enforce_sorted, do not increase.
template <class Position>
PackedSequence pack(const char* op, const Tensor& rows, const Lengths& lengths, bool enforce_sorted,
                    Position position) {
    if (lengths.empty())
        throw ValueError(str(op, ": needs at least one sequence: the list is empty"));
    for (const std::int64_t length : lengths)
        if (length < 1) throw ValueError(str(op, ": lengths must be positive: ", length));
    const auto rise = std::adjacent_find(lengths.begin(), lengths.end(),
                                         [](std::int64_t a, std::int64_t b) { return a < b; });
    if (enforce_sorted && rise != lengths.end())
        throw ValueError(str(op, ": the lengths must be sorted in decreasing order: ", rise[0],
                             " is before ", rise[1],
                             "; set enforce_sorted to false to sort the sequences"));
    const Lengths order = sorted_order(lengths);
    const std::int64_t longest = lengths[static_cast<std::size_t>(order[0])];
    PackedSequence packed;
    Lengths selected;
    for (std::int64_t t = 0; t < longest; ++t) {
        std::int64_t count = 0;
        for (const std::int64_t b : order) {
            if (lengths[static_cast<std::size_t>(b)] <= t) break;
            selected.push_back(position(b, t));
            ++count;
        }
        packed.batch_sizes.push_back(count);
    }
    packed.data = index_select(rows, 0, index_on(rows.device(), selected));
    if (enforce_sorted) return packed;
    packed.sorted_indices = index_on(rows.device(), order);
    packed.unsorted_indices = index_on(rows.device(), inverse(order));
    return packed;
}

// Returns the lengths of the sequences in sorted order.
Lengths sorted_lengths(const Lengths& batch_sizes) {
    Lengths lengths(static_cast<std::size_t>(batch_sizes.empty() ? 0 : batch_sizes[0]));
    for (const std::int64_t size : batch_sizes)
        for (std::int64_t i = 0; i < size; ++i) ++lengths[static_cast<std::size_t>(i)];
    return lengths;
}

// Returns the position in sorted order of each sequence of the original order. Throws ValueError if
// unsorted_indices is not a permutation of the sequences.
Lengths sorted_positions(const char* op, const PackedSequence& sequence) {
    Lengths identity(static_cast<std::size_t>(sequence.batch()));
    std::iota(identity.begin(), identity.end(), 0);
    if (!sequence.unsorted_indices.defined()) return identity;
    const std::vector<double> values = sequence.unsorted_indices.to_vector();
    std::vector<double> sorted = values;
    std::ranges::sort(sorted);
    if (!std::ranges::equal(sorted, identity))
        throw ValueError(
            str(op, ": unsorted_indices must contain each number from 0 to ", sequence.batch() - 1,
                " once: it has ", values.size(), " numbers",
                sorted.empty() ? "" : str(" from ", sorted.front(), " to ", sorted.back())));
    return {values.begin(), values.end()};
}

}  // namespace

PackedSequence PackedSequence::to(Device device) const {
    PackedSequence moved = *this;
    for (Tensor* t : {&moved.data, &moved.sorted_indices, &moved.unsorted_indices})
        if (t->defined()) *t = t->to(device);
    return moved;
}

PackedSequence PackedSequence::to(DType dtype) const {
    PackedSequence converted = *this;
    converted.data = data.to(dtype);
    return converted;
}

PackedSequence pack_padded_sequence(const Tensor& input, const Lengths& lengths,
                                    PackOptions options) {
    constexpr const char* kOp = "pack_padded_sequence";
    check_device(kOp, {&input});
    if (input.dim() < 2)
        throw ShapeError(
            str(kOp, ": input must have at least two dimensions: it is ", input.shape()));
    const std::int64_t batch = input.size(options.batch_first ? 0 : 1);
    const std::int64_t time = input.size(options.batch_first ? 1 : 0);
    if (static_cast<std::int64_t>(lengths.size()) != batch)
        throw ValueError(str(kOp, ": expected one length for each of ", batch,
                             " sequences: there are ", lengths.size(), " lengths"));
    for (const std::int64_t length : lengths)
        if (length > time)
            throw ValueError(str(kOp,
                                 ": lengths must not exceed the size of the padded sequences: "
                                 "length ",
                                 length, ", size ", time));
    return pack(kOp, flatten(input, 0, 1), lengths, options.enforce_sorted,
                [&](std::int64_t b, std::int64_t t) {
                    return options.batch_first ? b * time + t : t * batch + b;
                });
}

PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths,
                                    PackOptions options) {
    check_device("pack_padded_sequence", {&lengths});
    check_index_dtype("pack_padded_sequence", lengths, "lengths");
    if (lengths.dim() != 1)
        throw ShapeError(
            str("pack_padded_sequence: lengths must have one dimension: it is ", lengths.shape()));
    const std::vector<double> values = lengths.to_vector();
    return pack_padded_sequence(input, Lengths(values.begin(), values.end()), options);
}

PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted) {
    if (sequences.empty())
        throw ValueError("pack_sequence: needs at least one sequence: the list is empty");
    Lengths lengths, starts;
    std::int64_t total = 0;
    for (const Tensor& sequence : sequences) {
        check_device("pack_sequence", {&sequence});
        if (sequence.dim() == 0)
            throw ShapeError(
                "pack_sequence: a sequence must have at least one dimension: it is []");
        starts.push_back(total);
        lengths.push_back(sequence.size(0));
        total += lengths.back();
    }
    return pack(
        "pack_sequence", cat(sequences, 0), lengths, enforce_sorted,
        [&](std::int64_t b, std::int64_t t) { return starts[static_cast<std::size_t>(b)] + t; });
}

std::pair<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence,
                                              UnpackOptions options) {
    constexpr const char* kOp = "pad_packed_sequence";
    recurrent::check_packed(kOp, sequence);
    const auto longest = static_cast<std::int64_t>(sequence.batch_sizes.size());
    const std::int64_t time = options.total_length.value_or(longest), batch = sequence.batch();
    if (time < longest)
        throw ValueError(str(kOp,
                             ": total_length must be at least the largest length: total_length ",
                             time, ", largest length ", longest));
    Lengths starts;  // starts[t] is the first row of data with an element t
    std::int64_t total = 0;
    for (const std::int64_t size : sequence.batch_sizes) starts.push_back(total), total += size;
    const Lengths positions = sorted_positions(kOp, sequence);
    const Lengths sorted = sorted_lengths(sequence.batch_sizes);

    // The row `total` is a row of padding.
    Lengths rows(static_cast<std::size_t>(time * batch), total), lengths;
    for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t position = positions[static_cast<std::size_t>(b)];
        lengths.push_back(sorted[static_cast<std::size_t>(position)]);
        for (std::int64_t t = 0; t < lengths.back(); ++t) {
            const std::int64_t place = options.batch_first ? b * time + t : t * batch + b;
            rows[static_cast<std::size_t>(place)] = starts[static_cast<std::size_t>(t)] + position;
        }
    }
    const Tensor& data = sequence.data;
    Shape row = data.shape(), padded = data.shape();
    row[0] = 1;
    padded[0] = options.batch_first ? batch : time;
    padded.insert(1, options.batch_first ? time : batch);
    const Tensor padding = full(row, options.padding_value, {data.dtype(), data.device()});
    const Tensor index = index_on(data.device(), rows);
    return {index_select(cat({data, padding}), 0, index).reshape(padded), tensor(lengths)};
}

std::vector<Tensor> unpack_sequence(const PackedSequence& sequence) {
    const auto [padded, lengths] = pad_packed_sequence(sequence, {.batch_first = true});
    const std::vector<double> sizes = lengths.to_vector();
    std::vector<Tensor> sequences;
    for (std::size_t b = 0; b < sizes.size(); ++b)
        sequences.push_back(
            padded[static_cast<std::int64_t>(b)].narrow(0, 0, static_cast<std::int64_t>(sizes[b])));
    return sequences;
}

}  // namespace axle::nn
