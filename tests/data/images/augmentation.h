// The results that tests/golden/record_augmentation.py has recorded, and random numbers for tests.
#pragma once

#include <string>
#include <vector>

#include "core/files/safetensors.h"
#include "data/images/byte_image.h"
#include "data/transforms.h"
#include "tests/vectors.h"

namespace axle::tests {

// Returns a list of augmentation.json.
inline nlohmann::json augmentation(const char* list) {
    static const auto file = read_json(AXLE_TESTS_DIR "/golden/augmentation.json");
    return file.at(list);
}

// Returns a tensor of augmentation.safetensors.
inline Tensor augmentation_tensor(const std::string& name) {
    static const auto file = load_safetensors(AXLE_TESTS_DIR "/golden/augmentation.safetensors");
    return file.tensors.at(name);
}

inline std::vector<data::SampleRandom> sample_randoms(std::int64_t n, std::int64_t epoch = 0) {
    std::vector<data::SampleRandom> random;
    for (std::int64_t i = 0; i < n; ++i)
        random.emplace_back(data::SampleRandom::epoch_key(5, epoch), i);
    return random;
}

// Returns an image [c, h, w] after change(ByteImage).
template <class F>
Tensor changed(const Tensor& image, F&& change) {
    Tensor copy = image.clone();
    const data::ByteImage pixels = {
        copy.data<std::uint8_t>(), copy.size(0), {copy.size(1), copy.size(2)}};
    change(pixels);
    return copy;
}

}  // namespace axle::tests
