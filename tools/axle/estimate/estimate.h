// Private to tools: estimates the memory that a model needs, as `accelerate estimate-memory` does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace axle::launcher {

// The names of a model's tensors and their sizes in bytes with 32-bit weights.
using TensorBytes = std::vector<std::pair<std::string, std::int64_t>>;

// Returns the tensors of a model. `model` is a known name such as gpt2 or resnet50, a config.json,
// a .safetensors file, or a folder with one of these files. Only the headers of weight files are
// read. Throws FileError or ValueError for another name or file.
TensorBytes tensors_of(const std::string& model);

struct ModelSize {
    std::int64_t total = 0, largest = 0;      // bytes of all tensors, and of the largest layer
    std::vector<std::string> largest_layers;  // the names of all layers of this size
    // The sizes of the largest block of a transformer, and of all tensors outside of blocks.
    std::int64_t largest_block = 0, outside_of_blocks = 0;
};
// Returns the sizes of a model. A layer is a group of tensors that must be on one device: a
// transformer block, a module named embeddings, or another module with weights.
ModelSize model_size(const TensorBytes& tensors);

// The dtypes of estimates. With fp8, weights are stored in 16 bits.
enum class EstimateDType : std::uint8_t { float32, float16, bfloat16, int8, int4, fp8 };
// Parses a name such as "float16". Throws UsageError for an unknown name.
EstimateDType estimate_dtype(const std::string& name);
// Returns the size in bytes of the weights in another dtype.
double bytes_in(std::int64_t float32_bytes, EstimateDType dtype);
// The memory in bytes for training with Adam, without activations: weights, optimizer state,
// gradients including temporary tensors, and the peak of a step. training_bytes() returns nullopt
// for dtypes that training does not support.
struct TrainingBytes {
    std::int64_t model = 0, optimizer = 0, gradients = 0, step = 0;
};
std::optional<TrainingBytes> training_bytes(std::int64_t float32_bytes, EstimateDType dtype);

}  // namespace axle::launcher
