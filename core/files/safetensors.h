// The safetensors format: a JSON header, then the bytes of the tensors without gaps. The reader
// validates the complete header. For an inconsistent file, it throws FileError "path: reason"
// before memory is allocated for the tensors.
//
//     8 bytes   N, little-endian, at most 100,000,000
//     N bytes   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3],
//               "data_offsets": [begin, end]}, ...} and spaces
//     the rest  every byte belongs to exactly one tensor, little-endian, row-major
//
// Offsets are counted from the end of the header. Elements smaller than a byte (F4, F6) are not
// supported.
//
// Limits: a file has at most 1,000,000 tensors and 100,000 metadata keys; names and texts have at
// most 8 MiB. Opening a file needs at most 32 MiB of memory plus 8 bytes per byte of its header.
// The slowest step is sorting the names. A loaded tensor needs the memory of its elements and about
// 600 bytes.
#pragma once

#include <cstdint>
#include <functional>
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
// name, as in the reference library. So equal tensors give equal files, independently of the order
// of `tensors`. Strided tensors are written row-major. Throws ValueError for names and metadata
// that a reader would reject. Examples are a duplicate name, invalid UTF-8, a header that is too
// long, and too many metadata keys. Throws UsageError for an undefined tensor, DeviceError for a
// meta tensor, and FileError if the file cannot be written.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const Metadata& metadata = {}, Durability durability = Durability::full);
// Returns the values of the tensor with this name.
using TensorReader = std::function<Tensor(const std::string& name)>;
// Writes tensors into `file`, which the caller must commit. A tensor on the meta device stands for
// the values that read(name) returns. read() is called once for each such tensor when it is
// written, so that only one tensor needs memory at a time. Throws FileError if the dtype or shape
// of the values differs from the meta tensor, and DeviceError for a meta tensor if `read` is empty.
// Also throws the other errors of the overload with a path.
void save_safetensors(AtomicFile& file, const NamedTensors& tensors, const Metadata& metadata = {},
                      const TensorReader& read = {});
// Writes the (name, tensor) pairs of any container, such as the result of load_safetensors(), as
// the overload with a path does.
template <class Tensors>
void save_safetensors(const std::string& path, const Tensors& tensors,
                      const Metadata& metadata = {}) {
    save_safetensors(path, NamedTensors(tensors.begin(), tensors.end()), metadata);
}

// The contents of a safetensors file, with all tensors copied into memory.
struct Safetensors {
    std::map<std::string, Tensor> tensors;
    Metadata metadata;
};

// Reads a file. Throws FileError if it is missing or invalid.
Safetensors load_safetensors(const std::string& path);

// An open file whose header was read and checked by the constructor, which throws FileError if the
// file is missing or invalid. Copies of this handle share the file. Several threads can read
// concurrently.
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
    // Returns the entry of a tensor. Throws FileError if the file has no tensor of this name.
    const Entry& entry(const std::string& name) const;

    // Returns a tensor, copied into memory. Throws FileError if the file has no tensor of this
    // name, or if a byte of a bool tensor is neither 0 nor 1.
    Tensor tensor(const std::string& name) const;
    // Returns the tensor of an entry of this file, copied into memory. Throws FileError if a byte
    // of a bool tensor is neither 0 nor 1.
    Tensor tensor(const Entry& entry) const;
    // Returns a tensor without a copy, in memory mapped from the file (see MappedFile in
    // core/files/file.h for its conditions). A tensor that is misaligned in the file is copied.
    // Throws FileError as tensor(name) does, and if the file cannot be mapped.
    Tensor mapped_tensor(const std::string& name) const;

  private:
    struct State;
    std::shared_ptr<const State> state_;
};

}  // namespace axle
