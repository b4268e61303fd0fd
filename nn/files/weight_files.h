// Private to the library: weight files in Hugging Face's layout. They are either model.safetensors,
// or several shards with an index that maps weights to shards. Files of torch.save
// (core/files/torch_file.h) can be read too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files/safetensors.h"
#include "nn/files/shard_size.h"
#include "nn/module.h"

namespace axle::nn {

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kWeightsIndexName = "model.safetensors.index.json";
inline constexpr const char* kTorchWeightsName = "pytorch_model.bin";
inline constexpr const char* kTorchWeightsIndexName = "pytorch_model.bin.index.json";

// --- writing

struct WeightSize {
    std::string name;
    std::int64_t bytes = 0;
    // The address of the storage, or null. Weights with the same address share storage: their size
    // counts once, and they are written to the same file.
    const void* memory = nullptr;
};
struct ShardPlan {
    struct File {
        std::string name;
        std::vector<std::string> weights;  // in their original order
    };
    std::vector<File> files;  // one file without a suffix in its name, or several shards
    std::int64_t total_size = 0;

    bool is_sharded() const { return files.size() > 1; }
    // Returns the text of the index file.
    std::string index() const;
};
// Distributes weights over shards by the algorithm of the Hugging Face Hub: weights fill a shard in
// their order until the next one would exceed max_shard_size. A weight larger than max_shard_size
// gets its own shard, which is placed before the shard that is being filled.
ShardPlan plan_shards(const std::vector<WeightSize>& weights, ShardSize max_shard_size,
                      std::string_view pattern = "model{suffix}.safetensors");

// Writes weights into a folder, which is created if it is missing, and removes weight files of
// earlier calls. All data are written to temporary files before any file is replaced, so after an
// error the old weights are intact. If the program is killed while several shards are being
// replaced, the folder has no index, so old and new shards are never combined. Throws DeviceError
// for meta tensors and FileError if the folder is a file.
void save_weights(const StateDict& state, const std::string& directory, ShardSize max_shard_size);

// --- reading

// Opened weight files with validated headers. Files of torch.save are read completely to verify
// their checksums. All functions throw FileError with the path and the reason.
class WeightFiles {
  public:
    class Weight {
      public:
        Weight(SafetensorsFile file, SafetensorsFile::Entry entry)
            : file_(std::move(file)), entry_(std::move(entry)) {}
        explicit Weight(const Tensor& mapped) : mapped_(mapped) {}

        DType dtype() const { return file_ ? entry_.dtype : mapped_.dtype(); }
        const Shape& shape() const { return file_ ? entry_.shape : mapped_.shape(); }
        // Returns a copy of the weight in its own memory.
        Tensor read() const;
        // Returns a tensor that uses the memory of the mapped file. The conditions for mapped files
        // in core/files/file.h apply.
        Tensor mapped() const;

      private:
        std::optional<SafetensorsFile> file_;
        SafetensorsFile::Entry entry_;
        Tensor mapped_;  // set for PyTorch's files
    };

    // Opens a .safetensors file, the .json index of shards, or a PyTorch file that contains a map
    // of tensors.
    explicit WeightFiles(const std::string& path);

    const std::string& path() const { return path_; }
    const std::map<std::string, Weight>& weights() const { return weights_; }

  private:
    using Weights = std::map<std::string, Weight>;
    static Weights read_file_of_weights(const std::string& path);
    void read_shards();

    std::string path_;
    Weights weights_;
};

}  // namespace axle::nn
