// Private to data/loading: collates samples with a function that creates the tensors of the batch.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/tree/tree.h"

namespace axle::data {

// The values of one member in all samples of a batch.
using Column = std::vector<const Tree*>;

// Makes the tensor of a batch from a column of tensors. `name` is the name of the member, for
// example "image.mask" or "boxes[0]"; the name of a complete sample is "".
using StackTensors = std::function<Tensor(const Column& column, const std::string& name)>;

// Returns the batch of the samples as collate() does, but makes tensors with `stack`. Messages of
// errors begin with `who`.
Tree collate_columns(const char* who, std::span<const Tree> samples, const StackTensors& stack);

// Stacks the tensors of a column, as collate() does. Throws ShapeError if shapes differ or the
// tensors have the maximum number of dimensions, DeviceError if devices differ, and ValueError if
// dtypes differ.
Tensor stack_column(const char* who, const Column& column, const std::string& name);

// Returns the beginning of an error message about a member.
std::string error_prefix(const char* who, const std::string& name);
// Returns the part of an error message that names samples 0 and i of a batch.
std::string sample_pair(std::size_t i);
// Returns whether the elements of a tensor can be copied as bytes to a batch: the tensor is
// contiguous, on the CPU, and needs no gradient.
bool is_plain(const Tensor& t);

}  // namespace axle::data
