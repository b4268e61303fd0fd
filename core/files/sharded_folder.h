// ShardedFolder: folders of tensors, such as the parameters of a sharded model, that several
// processes store in parts. Each process writes one safetensors file, and one process writes the
// index:
//
//     rank_00000.safetensors   1-d parts of tensors, under the names of the tensors
//     index.json               {"format": "axle.sharded", "version": 1, "tensors": {"name": {
//                              "dtype": "F32", "shape": [2, 3], "parts":
//                              [["rank_00000.safetensors", 0, 4], ...]}}, "extra": ...}
//
// A part names a file and the range [begin, end) of the tensor's elements, in row-major order, that
// the file contains. Parts may overlap, but a file has only one part of a tensor. The number of
// processes that read may differ from the number that wrote: each process reads only the elements
// that it needs.
//
// Limits: an index has at most 256 MiB. Its values need at most 16 MiB of memory plus 16 bytes per
// byte of the index.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/files/safetensors.h"
#include "core/tree/tree.h"

namespace axle {

inline constexpr const char* kShardedIndexName = "index.json";

// The part of a tensor that a process stores.
struct TensorPart {
    std::string name;
    Shape shape;             // the shape of the whole tensor
    std::int64_t begin = 0;  // index of the first element of the part in the whole tensor
    Tensor values;           // 1-d; may be empty
};

// Returns the entries of one process for write_sharded_index(). Throws ValueError for a dtype that
// safetensors files lack.
Tree entries_of(int rank, const std::vector<TensorPart>& parts);

// Writes the file of one process into an existing folder. Throws the errors of save_safetensors().
void write_tensor_parts(const std::string& folder, int rank, const std::vector<TensorPart>& parts,
                        Durability durability = Durability::full);

// Writes the index from the entries of all processes in rank order. `extra` is a value without
// tensors, which ShardedFolder::extra() returns. Throws ValueError if processes have different
// shapes or dtypes for one name, or if no part contains some elements of a tensor. Also throws
// ValueError if an entry is invalid (IndexError if a key is missing) or `extra` contains a tensor.
// Throws FileError if the file cannot be written.
void write_sharded_index(const std::string& folder, const std::vector<Tree>& entries,
                         const Tree& extra = {}, Durability durability = Durability::full);

// A folder written by write_tensor_parts() and write_sharded_index(). Files are opened on first
// use, and must not be symbolic links. Functions throw FileError with the path and the reason if a
// file is missing or invalid. Not thread-safe.
class ShardedFolder {
  public:
    struct Entry {
        struct Part {
            std::string file;
            std::int64_t begin = 0, end = 0;
        };
        DType dtype = DType::f32;
        Shape shape;
        std::vector<Part> parts;  // sorted by their first element
    };

    // Verifies the bytes [begin, end) of a file in the folder, for example with checksums, and
    // throws FileError if they are damaged.
    using ByteCheck =
        std::function<void(const std::string& file, std::int64_t begin, std::int64_t end)>;

    // Reads and checks the index. `check` is called before bytes of any other file are used.
    explicit ShardedFolder(std::string path, ByteCheck check = {});

    // Returns whether a folder contains a file with the name of the index, which is not read.
    static bool is_one(const std::string& path);

    const std::string& path() const { return path_; }
    const std::map<std::string, Entry>& entries() const { return entries_; }
    const Tree& extra() const { return extra_; }
    // Returns elements [begin, begin + count) of a tensor, in row-major order, as a 1-d CPU tensor.
    // Throws FileError if the index does not have the tensor, and IndexError for a range outside of
    // the tensor.
    Tensor read(const std::string& name, std::int64_t begin, std::int64_t count) const;
    // Returns a whole tensor.
    Tensor read(const std::string& name) const;
    // Verifies the bytes of the elements that read() would return. Throws the same errors.
    void verify(const std::string& name, std::int64_t begin, std::int64_t count) const;

  private:
    const SafetensorsFile& file(const std::string& name) const;
    const Entry& entry(const std::string& name) const;
    std::vector<Tensor> pieces(const std::string& name, std::int64_t begin,
                               std::int64_t count) const;

    std::string path_;
    ByteCheck check_;
    std::map<std::string, Entry> entries_;
    Tree extra_;
    mutable std::map<std::string, SafetensorsFile> files_;
};

}  // namespace axle
