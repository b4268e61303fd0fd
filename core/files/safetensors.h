// The safetensors format: a JSON header, then the bytes of the tensors without gaps. The reader
// validates everything: an inconsistent file throws FileError "path: reason" before memory is
// allocated for its tensors.
//
//     8 bytes   N, little-endian, at most 100,000,000
//     N bytes   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3],
//               "data_offsets": [begin, end]}, ...} and spaces
//     the rest  every byte belongs to exactly one tensor, little-endian, row-major
//
// Offsets count from the end of the header. Elements smaller than a byte (F4, F6) are refused.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/tensor.h"

namespace axle {

using Metadata = std::map<std::string, std::string>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Writes a file atomically (core/files/file.h). Tensors are written by dtype, widest first, then by
// name, as the reference library does, so the order of `tensors` does not matter and equal tensors
// give equal files. Strided tensors are written row-major. Throws ValueError for anything a reader
// would refuse: a duplicate name, names or text that are not UTF-8, a header that is too long.
// Throws DeviceError for a meta tensor.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const Metadata& metadata = {});
// Writes tensors into a file that the caller commits.
void save_safetensors(AtomicFile& file, const NamedTensors& tensors, const Metadata& metadata = {});
// Writes any other range of (name, tensor), such as the result of load_safetensors.
template <class Tensors>
void save_safetensors(const std::string& path, const Tensors& tensors,
                      const Metadata& metadata = {}) {
    save_safetensors(path, NamedTensors(tensors.begin(), tensors.end()), metadata);
}

// The contents of a file, with all tensors copied into memory.
struct Safetensors {
    std::map<std::string, Tensor> tensors;
    Metadata metadata;
};
Safetensors load_safetensors(const std::string& path);

// An open file whose header was read and checked. Copies share the file. Several threads can read.
class SafetensorsFile {
  public:
    struct Entry {
        std::string name;
        DType dtype = DType::f32;
        Shape shape;
        std::int64_t begin = 0, end = 0;  // bytes from the start of the file
    };

    explicit SafetensorsFile(const std::string& path);

    // Returns the entries, sorted by their position in the file.
    const std::vector<Entry>& entries() const;
    const Metadata& metadata() const;
    bool contains(const std::string& name) const;

    // Returns a copy in memory. Throws FileError if no tensor has this name.
    Tensor tensor(const std::string& name) const;
    // Returns a copy of the tensor of an entry of this file.
    Tensor tensor(const Entry& entry) const;
    // Returns the tensor without a copy, in memory mapped from the file under the conditions of
    // MappedFile (core/files/file.h). A tensor that is misaligned in the file is copied.
    Tensor mapped_tensor(const std::string& name) const;

  private:
    struct State;
    std::shared_ptr<const State> state_;
};

}  // namespace axle
