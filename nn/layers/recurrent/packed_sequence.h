// PackedSequence: sequences of different lengths without padding, for RNN, LSTM and GRU.
//
//     const nn::PackedSequence x =
//         nn::pack_padded_sequence(padded, lengths, {.batch_first = true});
//     const auto [y, state] = lstm(x);
//     const auto [outputs, lengths_again] = nn::pad_packed_sequence(y, {.batch_first = true});
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "core/tensor.h"

namespace axle::nn {

// The sequences are sorted by decreasing length. `data` has the first elements of all sequences,
// then the second elements of all sequences with at least two elements, and so on.
struct PackedSequence {
    Tensor data;                            // [sum of all lengths, ...]
    std::vector<std::int64_t> batch_sizes;  // the number of sequences with an element t, for each t
    // sorted_indices[i] is the position (i64) of the i-th longest sequence in the original order,
    // and unsorted_indices is the inverse permutation. Both are undefined if the sequences were
    // packed with enforce_sorted.
    Tensor sorted_indices, unsorted_indices;

    // Returns the number of sequences, or 0 if there are none.
    std::int64_t batch() const { return batch_sizes.empty() ? 0 : batch_sizes.front(); }
    // Return a copy with `data` on another device (with the indices) or of another dtype.
    PackedSequence to(Device device) const;
    PackedSequence to(DType dtype) const;

    template <class F>
    void visit(F&& f) {
        f("data", data), f("batch_sizes", batch_sizes);
        f("sorted_indices", sorted_indices), f("unsorted_indices", unsorted_indices);
    }
};

struct PackOptions {
    bool batch_first = false;  // the input is [B, T, ...] instead of [T, B, ...]
    // If true, the sequences must already be sorted by decreasing length. If false, they are
    // sorted.
    bool enforce_sorted = true;
};
// Packs sequences that are padded at their ends to T elements. Throws ShapeError if input has fewer
// than two dimensions, and ValueError unless there is at least one sequence and one length for each
// sequence, all lengths are in [1, T], and they do not increase if enforce_sorted is true.
PackedSequence pack_padded_sequence(const Tensor& input, const std::vector<std::int64_t>& lengths,
                                    PackOptions options = {});
// Packs sequences with lengths [B] (i64 or i32). The host waits if the lengths are on a GPU. Throws
// the errors of the function above, ShapeError unless lengths have one dimension, and DTypeError
// for lengths of another dtype.
PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths,
                                    PackOptions options = {});
// Packs sequences [length, ...], which differ only in their lengths. Throws ValueError if there are
// no sequences, if a sequence is empty, or if enforce_sorted is true and a length is larger than
// the previous length, and ShapeError if a sequence has no dimension or if other sizes differ.
PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted = true);

struct UnpackOptions {
    bool batch_first = false;  // the result is [B, T, ...] instead of [T, B, ...]
    double padding_value = 0;
    // The number of elements T of the padded sequences; by default the largest length.
    std::optional<std::int64_t> total_length = {};
};
// Returns the sequences [T, B, ...], padded and in their original order, and their lengths (i64)
// [B] on the CPU. Throws UsageError if sequence.data is undefined, and ValueError if total_length
// is less than the largest length, if the batch sizes do not fit sequence.data, or if
// unsorted_indices is not a permutation of the sequences.
std::pair<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence,
                                              UnpackOptions options = {});
// Returns the sequences [length, ...] in their original order. Throws the errors of
// pad_packed_sequence().
std::vector<Tensor> unpack_sequence(const PackedSequence& sequence);

}  // namespace axle::nn
