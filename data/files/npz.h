// Reads NumPy's .npz files: zip files with an .npy file for each array.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace axle::data {

struct NpzOptions {
    // The arrays to read. If the list is empty, all arrays are read. Arrays that are not read are
    // not decompressed or checked.
    std::vector<std::string> names = {};
    // The largest total size of the compressed arrays after decompression.
    std::int64_t max_inflated = std::int64_t{1} << 32;
};

// Reads the files of numpy.savez and numpy.savez_compressed. Returns the arrays by name, as
// contiguous tensors; a name is the name in the zip file without the suffix ".npy". Arrays are
// those that load_npy() supports. Checksums are verified. Uncompressed arrays need no more memory
// than the file has bytes. A compressed array needs memory for two copies while it is read.
//
// Throws FileError with the path, the entry of the zip file and the reason if the file is missing,
// truncated or damaged; if it does not contain an array of `names`, or contains two arrays with the
// same name; if an array is not supported, such as pickled objects; or if the compressed arrays are
// larger than max_inflated. Throws ValueError if max_inflated is negative. The file
// must not be truncated while it is read (MappedFile in core/files/file.h).
std::map<std::string, Tensor> load_npz(const std::string& path, const NpzOptions& options = {});

}  // namespace axle::data
