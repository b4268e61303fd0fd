// Helpers that write distributed checkpoints in PyTorch's format, with any contents.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "tests/core/files/zip_files.h"

namespace axle::tests {

// --- pickles

inline std::string pickled_name(const std::string& module, const std::string& name) {
    return "c" + module + "\n" + name + "\n";
}
inline std::string pickled_text(const std::string& text) {
    return "X" + bytes_of(text.size(), 4) + text;
}
inline std::string pickled_integer(std::int64_t value) { return "\x8a\x08" + bytes_of(value); }
inline std::string pickled_tuple(const std::vector<std::string>& items) {
    std::string pickle = "(";
    for (const std::string& item : items) pickle += item;
    return pickle + "t";
}
inline std::string pickled_call(const std::string& function,
                                const std::vector<std::string>& arguments) {
    return function + pickled_tuple(arguments) + "R";
}
// Returns the pickle of an object. `fields` alternates pickled keys and values.
inline std::string pickled_object(const std::string& type, const std::vector<std::string>& fields) {
    std::string pickle = type + ")\x81}(";
    for (const std::string& field : fields) pickle += field;
    return pickle + "ub";
}
using Sizes = std::vector<std::int64_t>;
inline std::string pickled_shape(const Sizes& shape) {
    std::vector<std::string> sizes;
    for (const std::int64_t size : shape) sizes.push_back(pickled_integer(size));
    return pickled_call(pickled_name("torch", "Size"), {pickled_tuple(sizes)});
}

// --- .metadata

struct DescribedChunk {
    Sizes offsets, sizes;
    std::string file = {};
    std::int64_t offset = 0, length = 0;
};
struct DescribedTensor {
    std::string name;
    Sizes shape;
    std::vector<DescribedChunk> chunks;
    std::string dtype = "float32", layout = "torch.strided";
};

// Returns the contents of .metadata.
inline std::string metadata_of(const std::vector<DescribedTensor>& tensors) {
    const std::string module = "torch.distributed.checkpoint.metadata";
    std::string entries = "}(", items = "}(";
    for (const DescribedTensor& tensor : tensors) {
        std::string chunks = "](";
        for (const DescribedChunk& chunk : tensor.chunks) {
            chunks += pickled_object(pickled_name(module, "ChunkStorageMetadata"),
                                     {pickled_text("offsets"), pickled_shape(chunk.offsets),
                                      pickled_text("sizes"), pickled_shape(chunk.sizes)});
            items += pickled_object(
                pickled_name(module, "MetadataIndex"),
                {pickled_text("fqn"), pickled_text(tensor.name), pickled_text("offset"),
                 pickled_shape(chunk.offsets), pickled_text("index"), "N"});
            items += pickled_object(
                pickled_name("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
                {pickled_text("relative_path"), pickled_text(chunk.file), pickled_text("offset"),
                 pickled_integer(chunk.offset), pickled_text("length"),
                 pickled_integer(chunk.length)});
        }
        const std::string properties =
            pickled_name(module, "TensorProperties") + ")\x81" +
            pickled_tuple({pickled_name("torch", tensor.dtype),
                           pickled_call(pickled_name("torch.serialization", "_get_layout"),
                                        {pickled_text(tensor.layout)}),
                           "\x89",
                           pickled_call(pickled_name(module, "_MEM_FORMAT_ENCODING"), {"K\x01"}),
                           "\x89"}) +
            "b";
        entries +=
            pickled_text(tensor.name) +
            pickled_object(pickled_name(module, "TensorStorageMetadata"),
                           {pickled_text("properties"), properties, pickled_text("size"),
                            pickled_shape(tensor.shape), pickled_text("chunks"), chunks + "e"});
    }
    return "\x80\x02" +
           pickled_object(pickled_name(module, "Metadata"),
                          {pickled_text("state_dict_metadata"), entries + "u",
                           pickled_text("storage_data"), items + "u"}) +
           ".";
}

// --- chunks

// Returns a file of torch.save with a contiguous f32 tensor.
inline std::string saved_tensor(const Tensor& x) {
    std::string sizes = "(", strides = "(";
    for (int d = 0; d < x.ndim(); ++d) {
        sizes += pickled_integer(x.shape()[d]);
        strides += pickled_integer(x.strides()[d]);
    }
    const std::string pickle = "\x80\x02" + pickled_name("torch._utils", "_rebuild_tensor_v2") +
                               "((" + pickled_text("storage") +
                               pickled_name("torch", "FloatStorage") + pickled_text("0") +
                               pickled_text("cpu") + pickled_integer(x.numel()) + "tQ" +
                               pickled_integer(0) + sizes + "t" + strides + "t\x89}tR.";
    const auto* bytes = static_cast<const char*>(x.raw_data());
    return zip_of({{"archive/data.pkl", pickle},
                   {"archive/data/0", {bytes, static_cast<std::size_t>(x.numel() * 4)}}});
}

inline void write_bytes(const std::string& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace axle::tests
