// The safetensors format: a JSON header, then the bytes of the tensors without a gap. The reader
// believes nothing: a file that lies in any way is a FileError "path: reason", before memory is
// taken for its tensors.
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

namespace axle::inline v0 {

using Metadata = std::map<std::string, std::string>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Writes a file atomically (core/files/file.h). The order of `tensors` doesn't matter: they are
// written by dtype, the widest first, then by name, as the format's own library does, so that equal
// tensors give equal files. Strided tensors are written row-major. ValueError for what a reader
// would refuse: a name twice, a name or text that is not UTF-8, a header that is too long;
// DeviceError for a meta tensor.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const Metadata& metadata = {});
// Into a file that the caller commits.
void save_safetensors(AtomicFile& file, const NamedTensors& tensors, const Metadata& metadata = {});
// Any other range of names and tensors, such as what load_safetensors gives.
template <class Tensors>
void save_safetensors(const std::string& path, const Tensors& tensors,
                      const Metadata& metadata = {}) {
    save_safetensors(path, NamedTensors(tensors.begin(), tensors.end()), metadata);
}

// All tensors of a file, in memory of their own.
struct Safetensors {
    std::map<std::string, Tensor> tensors;
    Metadata metadata;
};
Safetensors load_safetensors(const std::string& path);

// An open file, its header read and checked. Copies share it; several threads may read.
class SafetensorsFile {
  public:
    struct Entry {
        std::string name;
        DType dtype = DType::f32;
        Shape shape;
        std::int64_t begin = 0, end = 0;  // bytes from the start of the file
    };

    explicit SafetensorsFile(const std::string& path);

    // In the order of their bytes.
    const std::vector<Entry>& entries() const;
    const Metadata& metadata() const;
    bool contains(const std::string& name) const;

    // A copy in memory of its own. FileError if no tensor has this name.
    Tensor tensor(const std::string& name) const;
    // The same, once its entry is known.
    Tensor tensor(const Entry& entry) const;
    // Without a copy: memory mapped from the file and private to this process, under the conditions
    // that core/files/file.h states for mapped files. A tensor that is not aligned in the file is
    // copied.
    Tensor mapped_tensor(const std::string& name) const;

  private:
    struct Opened;
    std::shared_ptr<const Opened> opened_;
};

}  // namespace axle::inline v0
