// Private to the library: weights as files, in Hugging Face's layout: model.safetensors, or shards
// of it and an index that says which weight is in which. PyTorch's own files
// (core/files/torch_file.h) are read too.
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

namespace axle::inline v0::nn {

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kWeightsIndexName = "model.safetensors.index.json";
inline constexpr const char* kTorchWeightsName = "pytorch_model.bin";
inline constexpr const char* kTorchWeightsIndexName = "pytorch_model.bin.index.json";

// --- writing

struct WeightSize {
    std::string name;
    std::int64_t bytes = 0;
    // Weights with the same one, if it is not null, share memory: they count once, and are in the
    // same file.
    const void* memory = nullptr;
};
struct ShardPlan {
    struct File {
        std::string name;
        std::vector<std::string> weights;  // in their order
    };
    std::vector<File> files;  // one, of the pattern without a suffix, or several
    std::int64_t total_size = 0;

    bool is_sharded() const { return files.size() > 1; }
    // The text of the index.
    std::string index() const;
};
// As Hugging Face's Hub plans: weights fill a shard in their order, until the next one would be too
// much. A weight that is larger than a shard may be gets one of its own, before the one that is
// being filled.
ShardPlan plan_shards(const std::vector<WeightSize>& weights, ShardSize max_shard_size,
                      std::string_view pattern = "model{suffix}.safetensors");

// Writes weights into a folder, creating it, and removes what earlier calls have left there beside
// them. Everything is written before any file is replaced: what fails leaves the old weights. A
// program that is killed while several shards are put in place leaves no index, and never one that
// calls old and new shards one model. DeviceError for meta tensors, FileError where the folder is a
// file.
void save_weights(const StateDict& state, const std::string& directory, ShardSize max_shard_size);

// --- reading

// Open files, their headers (a file of PyTorch: all of it, for its checksums) read and checked:
// FileErrors name the file and what is wrong in it.
class WeightFiles {
  public:
    class Weight {
      public:
        Weight(SafetensorsFile file, SafetensorsFile::Entry entry)
            : file_(std::move(file)), entry_(std::move(entry)) {}
        explicit Weight(const Tensor& mapped) : mapped_(mapped) {}

        DType dtype() const { return file_ ? entry_.dtype : mapped_.dtype(); }
        const Shape& shape() const { return file_ ? entry_.shape : mapped_.shape(); }
        // In memory of its own.
        Tensor read() const;
        // Of the file, under the conditions that core/files/file.h states for mapped files.
        Tensor mapped() const;

      private:
        std::optional<SafetensorsFile> file_;
        SafetensorsFile::Entry entry_;
        Tensor mapped_;  // of a file of PyTorch
    };

    // A .safetensors file, the .json index of shards, or else a file of PyTorch that holds a map of
    // tensors.
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

}  // namespace axle::inline v0::nn
