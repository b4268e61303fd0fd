#include "data/images/random_erasing.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/ops.h"
#include "data/image_checks.h"
#include "data/images/random_numbers.h"
#include "data/images/random_window.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

void check_pair(const char* name, const std::array<double, 2>& range, bool valid,
                const char* allowed) {
    if (!valid)
        throw ValueError(str("RandomErasing: ", name, " must be two numbers in ", allowed,
                             ", the smaller one first: ", range[0], " and ", range[1]));
}

// Calls next() for each element of a window in a plane.
template <class T, class Next>
void overwrite(T* plane, std::int64_t width, const ImageWindow& window, Next&& next) {
    for (std::int64_t y = window.top; y < window.top + window.size.h; ++y) {
        T* row = plane + y * width + window.left;
        for (std::int64_t x = 0; x < window.size.w; ++x) row[x] = next();
    }
}

template <class T>
T random_element(SampleRandom& draw) {
    if constexpr (std::is_same_v<T, std::uint8_t>) {
        return static_cast<T>(draw.below(256));
    } else {
        return static_cast<T>(normal(draw));
    }
}

}  // namespace

RandomErasing::RandomErasing(RandomErasingOptions options) : options_(std::move(options)) {
    const auto& [p, scale, ratio, value, random] = options_;
    if (!(p >= 0 && p <= 1)) throw ValueError(str("RandomErasing: p must be in [0, 1]: ", p));
    check_pair("scale", scale, scale[0] >= 0 && scale[0] <= scale[1] && scale[1] <= 1, "[0, 1]");
    check_pair("ratio", ratio, ratio[0] > 0 && ratio[0] <= ratio[1] && ratio[1] <= 1e6, "(0, 1e6]");
    if (value.empty()) throw ValueError("RandomErasing: value must not be empty");
}

Tensor RandomErasing::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    check_images("RandomErasing", images);
    if (images.dtype() != u8 && images.dtype() != f32 && images.dtype() != f64)
        throw DTypeError(str("RandomErasing: images must be uint8, float32 or float64: they are ",
                             images.dtype()));
    if (std::ssize(random) != images.size(0))
        throw UsageError(str("RandomErasing: needs one SampleRandom per image: ", images.size(0),
                             " images, ", random.size(), " given"));
    const std::vector<double>& value = options_.value;
    const std::int64_t channels = images.dim() == 3 ? 1 : images.size(-3);
    if (!options_.random && value.size() != 1 && std::ssize(value) != channels)
        throw ShapeError(
            str("RandomErasing: value must have 1 element or one for each channel: "
                "it has ",
                value.size(), " elements, images are ", images.shape()));
    for (const double v : value)
        if (images.dtype() == u8 && !options_.random && !(v >= 0 && v <= 255))
            throw ValueError(
                str("RandomErasing: the value for uint8 images must be in [0, 255]: ", v));
    Tensor result = contiguous(images).clone();
    if (result.numel() == 0) return result;

    const Size2 size = {result.size(-2), result.size(-1)};
    const std::int64_t planes = result.numel() / result.size(0) / (size.h * size.w);
    const auto erase = [&]<class T>() {
        T* plane = result.data<T>();
        for (SampleRandom& draw : random) {
            std::optional<ImageWindow> window;
            if (draw.uniform() < static_cast<float>(options_.p))
                window = erased_window(
                    size, options_.scale, options_.ratio, [&] { return draw.uniform(); },
                    [&](std::int64_t n) { return draw.below(n); });
            for (std::int64_t k = 0; k < planes; ++k, plane += size.h * size.w) {
                if (!window) continue;
                const auto c = static_cast<std::size_t>(value.size() == 1 ? 0 : k % channels);
                if (options_.random) {
                    overwrite(plane, size.w, *window, [&] { return random_element<T>(draw); });
                } else {
                    const T fixed = static_cast<T>(value[c]);
                    overwrite(plane, size.w, *window, [&] { return fixed; });
                }
            }
        }
    };
    if (images.dtype() == u8) {
        erase.template operator()<std::uint8_t>();
    } else {
        visit_f32_f64(images.dtype(), erase);
    }
    return result;
}

}  // namespace axle::data
