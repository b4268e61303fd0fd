#include "accel/tracking/image.h"

#include <algorithm>
#include <array>

namespace axle::accel {
namespace {

constexpr std::string_view kNames = "NCHW";
constexpr std::int64_t kGridColumns = 8;

// The sizes and strides of the dimensions in the order of kNames. Missing dimensions have size 1.
struct Layout {
    std::array<std::int64_t, 4> size = {1, 1, 1, 1};
    std::array<std::int64_t, 4> stride = {};
};

std::string_view default_formats(int dims) {
    if (dims < 2 || dims > 4) return "";
    return dims == 2 ? "HW" : kNames.substr(static_cast<std::size_t>(4 - dims));
}

Layout layout_of(const Tensor& tensor, std::string_view formats) {
    if (formats.empty()) formats = default_formats(tensor.dim());
    std::string seen;
    for (const char name : formats) {
        if (kNames.find(name) == std::string_view::npos || seen.find(name) != std::string::npos)
            throw ValueError(
                str("image: dataformats must consist of N, C, H and W, each at most once: '",
                    formats, "'"));
        seen += name;
    }
    if (seen.size() != static_cast<std::size_t>(tensor.dim()) ||
        seen.find('H') == std::string::npos || seen.find('W') == std::string::npos)
        throw ShapeError(
            str("image: dataformats must name each dimension, with H and W: dataformats '", formats,
                "', shape ", tensor.shape()));
    Layout layout;
    std::int64_t stride = 1;
    for (int dim = tensor.dim() - 1; dim >= 0; --dim) {
        const std::size_t at = kNames.find(formats[static_cast<std::size_t>(dim)]);
        layout.size[at] = tensor.size(dim);
        layout.stride[at] = stride;
        stride *= tensor.size(dim);
    }
    if (tensor.numel() == 0 || layout.size[1] > 4)
        throw ShapeError(str("image: needs at least one pixel, and 1 to 4 channels: dataformats '",
                             formats, "', shape ", tensor.shape()));
    return layout;
}

}  // namespace

Image to_image(const Tensor& tensor, std::string_view dataformats) {
    const Layout layout = layout_of(tensor, dataformats);
    const auto [n, channels, height, width] = layout.size;
    const std::int64_t columns = std::min(n, kGridColumns);
    const std::int64_t rows = (n + columns - 1) / columns;
    Image image{height * rows, width * columns, static_cast<int>(channels), {}};
    image.pixels.resize(static_cast<std::size_t>(image.height * image.width * channels));

    const bool bytes = !is_floating(tensor.dtype()) && tensor.dtype() != boolean;
    const float scale = bytes ? 1.0f : 255.0f;
    const std::vector<double> values = tensor.to_vector();
    const auto pixel = [&](std::int64_t i, std::int64_t y, std::int64_t x, std::int64_t c) {
        const auto& [sn, sc, sh, sw] = layout.stride;
        const auto at = static_cast<std::size_t>(i * sn + c * sc + y * sh + x * sw);
        const float value = static_cast<float>(values[at]) * scale;
        return static_cast<std::uint8_t>(value > 0 ? std::min(value, 255.0f) : 0.0f);
    };
    std::size_t at = 0;
    for (std::int64_t y = 0; y < image.height; ++y)
        for (std::int64_t x = 0; x < image.width; ++x)
            for (std::int64_t c = 0; c < channels; ++c, ++at) {
                const std::int64_t i = y / height * columns + x / width;
                if (i < n) image.pixels[at] = pixel(i, y % height, x % width, c);
            }
    return image;
}

}  // namespace axle::accel
