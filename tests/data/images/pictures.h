// The images in tests/golden/pictures, and the results that record_pictures.py has recorded.
#pragma once

#include <string>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "data/images/decode.h"

namespace axle::tests {

inline std::string picture(const std::string& name) {
    return std::string(AXLE_TESTS_DIR) + "/golden/pictures/" + name;
}

// Returns a tensor of pictures.safetensors.
inline Tensor recorded(const std::string& name) {
    static const auto file = load_safetensors(picture("pictures.safetensors"));
    return file.tensors.at(name);
}

// Returns whether this build decodes both formats. Other builds skip the tests that need images.
inline bool decodes_images() {
    return data::can_decode(data::ImageFormat::jpeg) && data::can_decode(data::ImageFormat::png);
}

}  // namespace axle::tests
