// Fuzzes decode_image() with JPEG and PNG images.
#include "data/images/decode.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    constexpr std::int64_t kMaxPixels = 1 << 16;
    for (const auto mode : {data::ImageMode::rgb, data::ImageMode::gray}) {
        Tensor image, again;
        const data::DecodeOptions options = {.mode = mode, .max_pixels = kMaxPixels};
        if (!accepts([&] { image = data::decode_image(input, kHostileName, options); })) continue;
        const std::int64_t channels = mode == data::ImageMode::rgb ? 3 : 1;
        require(image.dim() == 3 && image.size(0) == channels, "images are [C, H, W]");
        require(image.numel() > 0 && image.numel() <= channels * kMaxPixels,
                "images have pixels, and no more than the limit");
        again = data::decode_image(input, kHostileName, options);
        require_same(again, image);  // also detects bytes that were not written
    }
}

}  // namespace axle::tests
