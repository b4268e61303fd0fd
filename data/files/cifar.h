// Reads CIFAR-10 and CIFAR-100 in binary format: records of label bytes and 3 x 32 x 32 pixels.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "data/dataset.h"

namespace axle::data {

// Returns samples {"image": u8 [3, 32, 32], "label": i64 []} of CIFAR-10. Reads data_batch_1.bin to
// data_batch_5.bin in the folder, or test_batch.bin if `train` is false. Keeps all images in memory
// (154 MB). Throws FileError if a file is missing, and FileError with the byte offset if a file is
// empty, its size is not a multiple of the record size, or a label is out of range. The files must
// not be truncated while they are read (MappedFile in core/files/file.h).
TensorDataset cifar10(const std::string& folder, bool train = true);
// Returns the samples of CIFAR-100 from train.bin or test.bin. Samples and errors are as in
// cifar10(), with two labels: "label" is the fine label and "coarse_label" (i64 []) the coarse
// label.
TensorDataset cifar100(const std::string& folder, bool train = true);

// Parse the contents of one file and return all records as a batch. Throw FileError for the same
// errors as cifar10(), with `name` as the path.
Tree parse_cifar10(std::span<const std::byte> bytes, const std::string& name);
Tree parse_cifar100(std::span<const std::byte> bytes, const std::string& name);

}  // namespace axle::data
