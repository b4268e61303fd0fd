// Private to tools: how much memory a model takes, as `accelerate estimate-memory` counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace axle::launcher {

// Names of the tensors of a model and their bytes with 32-bit weights.
using TensorBytes = std::vector<std::pair<std::string, std::int64_t>>;

// A name that Axle knows (gpt2, bert-base-cased, resnet50, ...), a config.json or a folder with
// one, a .safetensors file or a folder with such files. Of weights in files the headers alone are
// read. FileError or ValueError for what is none of these.
TensorBytes tensors_of(const std::string& model);

struct ModelSize {
    std::int64_t total = 0, largest = 0;  // bytes
    std::vector<std::string> largest_layers;
};
// A layer is what lies on one device as a whole: a transformer's block, all of its embeddings, or
// any other module with weights of its own.
ModelSize model_size(const TensorBytes& tensors);

// Of fp8 the weights stay in 16 bits.
enum class EstimateDType : std::uint8_t { float32, float16, bfloat16, int8, int4, fp8 };
// UsageError for a name that is none of them.
EstimateDType estimate_dtype(const std::string& name);
// Of the weights alone.
double bytes_in(std::int64_t float32_bytes, EstimateDType dtype);
// Weights, Adam's state, gradients with what computing them takes, and the most that a step has of
// these, for one sample; nothing for what nobody trains in.
struct TrainingBytes {
    std::int64_t model = 0, optimizer = 0, gradients = 0, step = 0;
};
std::optional<TrainingBytes> training_bytes(std::int64_t float32_bytes, EstimateDType dtype);

}  // namespace axle::launcher
