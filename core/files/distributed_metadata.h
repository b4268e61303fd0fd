// The file .metadata of a distributed checkpoint of PyTorch (torch.distributed.checkpoint). It
// lists the tensors and values of the checkpoint and where the other files contain their bytes. It
// is a pickle, which is read without executing anything.
//
// Limits: the pickle has at most 100 MB. Its values need at most 64 MiB of memory plus 64 bytes per
// byte of the first 4 MiB and 32 bytes per further byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/shape.h"
#include "kernels/dtype.h"

namespace axle {

// Bytes of a file of the checkpoint, which torch.save has written.
struct StoredItem {
    std::string file;  // a name without folders
    std::int64_t offset = 0, length = 0;
};

// A tensor, which is divided into chunks.
struct DistributedTensor {
    struct Chunk {
        Shape offsets, sizes;  // the first index of the chunk in the tensor, and its shape
        StoredItem item;
    };
    DType dtype = DType::f32;
    Shape shape;
    std::vector<Chunk> chunks;      // without empty chunks
    std::vector<std::string> path;  // the keys in the saved state dict; empty if they are not known
};

// A value that is not a tensor, such as a number.
struct DistributedValue {
    StoredItem item;
    std::vector<std::string> path;
};

// The tensors and values by their names. The name is usually the path with dots between the keys.
struct DistributedMetadata {
    std::map<std::string, DistributedTensor> tensors;
    std::map<std::string, DistributedValue> values;
};

// Returns the contents of a .metadata file. Throws FileError, without a path, if the pickle is
// invalid, exceeds the limits, or lacks the location of a chunk or value. Also throws FileError for
// classes that this metadata does not use, unsupported dtypes and layouts, and transformed (for
// example, compressed) data. Does not check whether the chunks fit together.
DistributedMetadata read_distributed_metadata(std::span<const std::byte> pickle);

}  // namespace axle
