// Padding of tensors with different lengths, alone and in batches.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/scalar.h"
#include "core/tensor.h"
#include "data/loading/collate.h"

namespace axle::data {

// The end of a sequence at which padding is added.
enum class PaddingSide : std::uint8_t { right, left };

struct PadSequenceOptions {
    bool batch_first = false;
    Scalar padding_value = 0;  // converted to the dtype of the sequences as by Tensor::fill_()
    PaddingSide padding_side = PaddingSide::right;
};

// Pads tensors of shape [L_i, *] along dimension 0 to the largest L_i, and stacks them
// (torch.nn.utils.rnn.pad_sequence). Returns a contiguous tensor of shape [L, B, *], or [B, L, *]
// with batch_first, with the dtype and device of the sequences. Can be differentiated. Throws
// ValueError if there are no sequences, ShapeError if a sequence is 0-d, if sizes in other
// dimensions differ or if sequences have the maximum number of dimensions, DTypeError if dtypes
// differ, DeviceError if devices differ, and UsageError if a sequence is undefined.
Tensor pad_sequence(const std::vector<Tensor>& sequences, const PadSequenceOptions& options = {});

struct PaddingCollateOptions {
    Scalar padding_value = 0;
    // The padding values of single members, by name: "labels", or "image.mask" and "boxes[0]" for
    // members of maps and lists. All other tensors are padded with padding_value.
    std::vector<std::pair<std::string, Scalar>> padding_values = {};
    PaddingSide padding_side = PaddingSide::right;
    // Lengths are rounded up to a multiple of this number.
    std::int64_t pad_to_multiple_of = 1;
};

// Returns a function that combines samples into a batch as collate() does, but whose tensors may
// have different sizes in dimension 0: it pads them to the largest size in the batch. 0-d tensors
// are stacked.
//     {.collate_fn = data::padding_collate({.padding_values = {{"labels", -100}}})}
//
// Throws ValueError unless pad_to_multiple_of is positive. The returned function throws the errors
// of collate(), except for different sizes in dimension 0. It also throws ValueError if
// padding_values has a name that no tensor of the batch has. Several threads may call it
// concurrently.
Collate padding_collate(PaddingCollateOptions options = {});

}  // namespace axle::data
