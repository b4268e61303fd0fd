// CIFAR-10 and CIFAR-100 in their binary version: records of label bytes and 3 x 32 x 32 pixels.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "data/dataset.h"

namespace axle::inline v0::data {

// Samples {"image": u8 [3, 32, 32], "label": i64} of the folder's data_batch_1.bin to
// data_batch_5.bin, or of test_batch.bin. All images are held in memory, 154 MB. FileError with the
// offset for a file that is missing, empty, not a whole number of records, or has a label out of
// range. The files must not be truncated meanwhile (MappedFile).
TensorDataset cifar10(const std::string& folder, bool train = true);
// The same of train.bin or test.bin; the label is the fine one, and "coarse_label" (i64) is the
// other.
TensorDataset cifar100(const std::string& folder, bool train = true);

// One file in memory as a batch of its records; `name` stands for the path in messages.
Tree parse_cifar10(std::span<const std::byte> bytes, const std::string& name);
Tree parse_cifar100(std::span<const std::byte> bytes, const std::string& name);

}  // namespace axle::inline v0::data
