// Private to tools: estimates how much memory a model needs, like `accelerate estimate-memory`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace axle::launcher {

// Names of a model's tensors and their sizes in bytes with 32-bit weights.
using TensorBytes = std::vector<std::pair<std::string, std::int64_t>>;

// `model` is a known name (gpt2, bert-base-cased, resnet50, ...), a config.json, a .safetensors
// file, or a folder with either. Only the headers of weight files are read. Throws FileError or
// ValueError if it is none of these.
TensorBytes tensors_of(const std::string& model);

struct ModelSize {
    std::int64_t total = 0, largest = 0;  // bytes
    std::vector<std::string> largest_layers;
};
// A layer is what must be on one device: a transformer block, all embeddings together, or any other
// module with weights of its own.
ModelSize model_size(const TensorBytes& tensors);

// The dtypes of estimates. With fp8, weights are stored in 16 bits.
enum class EstimateDType : std::uint8_t { float32, float16, bfloat16, int8, int4, fp8 };
// Throws UsageError for an unknown name.
EstimateDType estimate_dtype(const std::string& name);
// Returns the size of the weights in another dtype.
double bytes_in(std::int64_t float32_bytes, EstimateDType dtype);
// Memory for training with Adam: weights, optimizer state, gradients including their temporaries,
// and the peak of a step, for one sample. nullopt for dtypes that cannot be trained in.
struct TrainingBytes {
    std::int64_t model = 0, optimizer = 0, gradients = 0, step = 0;
};
std::optional<TrainingBytes> training_bytes(std::int64_t float32_bytes, EstimateDType dtype);

}  // namespace axle::launcher
