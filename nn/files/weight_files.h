// Private to the library: weight files in Hugging Face's layout. The weights are in
// model.safetensors, or in several shards with an index that maps names of weights to shards. Files
// of torch.save (core/files/torch_file.h) can be read, but are not written.
//
// Limits: an index file has at most 64 MiB. Parsing an index file may use at most 16 MiB of memory
// plus 8 bytes per byte of the file. The list of weights needs about 150 bytes for each tensor of
// the files.
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
// The files to write, and the weights that each file contains.
struct ShardPlan {
    struct File {
        std::string name;
        std::vector<std::string> weights;  // names, in the order of the argument of plan_shards()
    };
    std::vector<File> files;      // one file without a suffix in its name, or several shards
    std::int64_t total_size = 0;  // in bytes; shared storage counts once

    bool is_sharded() const { return files.size() > 1; }
    // Returns the JSON text of the index file.
    std::string index() const;
};
// Distributes weights over shards by the algorithm of the Hugging Face Hub: weights fill a shard in
// their order until the next weight would make the shard larger than max_shard_size. A weight
// larger than max_shard_size gets its own shard, which is placed before the shard that is being
// filled. `pattern` is the file name. {suffix} is replaced by "-00001-of-00002" and so on, or by ""
// for a single file. Throws ValueError if the pattern does not contain {suffix}.
ShardPlan plan_shards(const std::vector<WeightSize>& weights, ShardSize max_shard_size,
                      std::string_view pattern = "model{suffix}.safetensors");

// Writes weights into a folder, which is created if it is missing, and removes weight files of
// earlier calls. All data are written to temporary files before any file is replaced, so an error
// while writing leaves the old weights intact. If the program is killed while several shards are
// being replaced, the folder has no index, so old and new shards are never combined. As in
// save_safetensors(), a weight on the meta device is read with `read` when it is written, so that
// only one such weight needs memory at a time. Throws UsageError for undefined tensors, DeviceError
// for meta tensors if `read` is empty, and FileError if `directory` is a file, if it is relative
// and the working directory was deleted, or if a file cannot be written.
void save_weights(const StateDict& state, const std::string& directory, ShardSize max_shard_size,
                  const TensorReader& read = {});

// --- reading

// Opened weight files with validated headers. Files of torch.save are read completely to verify
// their checksums. Functions throw FileError with the path and the reason if a file is missing or
// invalid.
class WeightFiles {
  public:
    class Weight {
      public:
        // `entry` must be one of the file's entries.
        Weight(SafetensorsFile file, const SafetensorsFile::Entry& entry)
            : file_(std::move(file)), entry_(&entry) {}
        explicit Weight(const Tensor& mapped) : mapped_(mapped) {}

        DType dtype() const { return file_ ? entry_->dtype : mapped_.dtype(); }
        const Shape& shape() const { return file_ ? entry_->shape : mapped_.shape(); }
        // Returns a copy of the weight in its own memory.
        Tensor read() const;
        // Returns a tensor that uses the memory of the mapped file, or a copy of a weight that is
        // misaligned in the file. The conditions for mapped files in core/files/file.h apply.
        Tensor mapped() const;

      private:
        std::optional<SafetensorsFile> file_;
        const SafetensorsFile::Entry* entry_ = nullptr;
        Tensor mapped_;  // the weight in a file of torch.save; otherwise undefined
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
