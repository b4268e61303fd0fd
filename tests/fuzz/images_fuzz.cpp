// Fuzzes decode_image() with JPEG and PNG images, and the decoding of their windows.
#include "data/images/decode.h"
#include "data/images/decoders.h"
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
        Tensor window;
        const auto middle = [](Size2 size) {
            return data::ImageWindow{size.h / 3, size.w / 3, {(size.h + 2) / 3, (size.w + 2) / 3}};
        };
        const std::string path = memory_file(kHostileName, input);
        if (!accepts([&] { window = data::read_window(path, options, middle); })) continue;
        require(
            window.size(1) == (image.size(1) + 2) / 3 && window.size(2) == (image.size(2) + 2) / 3,
            "windows have the size that was chosen");
        require_same(data::read_window(path, options, middle), window);
    }
}

}  // namespace axle::tests
