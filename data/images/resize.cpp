#include "data/images/resize.h"

#include <algorithm>
#include <utility>

#include "core/ops.h"
#include "data/image_checks.h"
#include "data/images/random_window.h"
#include "data/images/resample.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::int64_t kLongestSide = (std::int64_t{1} << 31) - 1;

void check_filter(const char* op, Interpolation filter) {
    if (filter != Interpolation::bilinear && filter != Interpolation::bicubic)
        throw ValueError(str(op, ": the filter must be bilinear or bicubic"));
}

void check_sides(const char* op, Size2 size) {
    if (std::min(size.h, size.w) < 1 || std::max(size.h, size.w) > kLongestSide)
        throw ValueError(str(op, ": sizes must be in [1, 2^31): ", size));
}

bool too_large(Size2 size) { return size.w > kMaxResizedPixels / size.h; }

// Checks the images and returns them as a contiguous tensor.
Tensor checked_bytes(const char* op, const Tensor& images) {
    check_images(op, images);
    if (images.dtype() != u8)
        throw DTypeError(str(op, ": images must be uint8: they are ", images.dtype(),
                             "; resize before ToFloat"));
    if (images.size(-2) < 1 || images.size(-1) < 1)
        throw ShapeError(str(op, ": images must have pixels: they are ", images.shape()));
    return contiguous(images);
}

Size2 size_of_images(const Tensor& images) { return {images.size(-2), images.size(-1)}; }

Tensor result_for(const Tensor& images, Size2 size) {
    Shape shape = images.shape();
    shape[shape.size() - 2] = size.h;
    shape[shape.size() - 1] = size.w;
    return empty(shape, {.dtype = u8});
}

// Returns contiguous images with another size.
Tensor resized(const Tensor& images, Size2 to, Interpolation filter) {
    const Size2 from = size_of_images(images);
    Tensor result = result_for(images, to);
    Resampler resample(from, to, filter);
    const std::uint8_t* plane = images.data<std::uint8_t>();
    std::uint8_t* out = result.data<std::uint8_t>();
    const std::int64_t planes = images.numel() / (from.h * from.w);
    for (std::int64_t p = 0; p < planes; ++p)
        resample(plane + p * from.h * from.w, from.w, out + p * to.h * to.w);
    return result;
}

}  // namespace

Resize::Resize(std::int64_t shorter_side, Interpolation filter)
    : shorter_side_(shorter_side), filter_(filter) {
    check_sides("Resize", {shorter_side, shorter_side});
    check_filter("Resize", filter);
}

Resize::Resize(Size2 size, Interpolation filter) : size_(size), filter_(filter) {
    check_sides("Resize", size);
    check_filter("Resize", filter);
}

Size2 Resize::size_for(Size2 image) const {
    if (shorter_side_ == 0) return size_;
    const bool tall = image.w <= image.h;
    const double shorter = static_cast<double>(tall ? image.w : image.h);
    const double longer = static_cast<double>(tall ? image.h : image.w);
    // The limit, which is more than kMaxResizedPixels, keeps the conversion in range.
    const auto other = static_cast<std::int64_t>(
        std::min(static_cast<double>(shorter_side_) * longer / shorter, 0x1p62));
    return tall ? Size2(other, shorter_side_) : Size2(shorter_side_, other);
}

Tensor Resize::operator()(const Tensor& images, std::span<SampleRandom>) const {
    const Tensor dense = checked_bytes("Resize", images);
    const Size2 from = size_of_images(dense), to = size_for(from);
    if (too_large(to))
        throw ShapeError(str("Resize: images of size ", from, " would have the size ", to,
                             ", more than ", kMaxResizedPixels, " pixels"));
    return resized(dense, to, filter_);
}

RandomResizedCrop::RandomResizedCrop(Size2 size, RandomResizedCropOptions options)
    : size_(size), options_(options) {
    check_sides("RandomResizedCrop", size);
    if (too_large(size))
        throw ValueError(str("RandomResizedCrop: the size must have at most ", kMaxResizedPixels,
                             " pixels: ", size));
    check_filter("RandomResizedCrop", options.filter);
    for (const auto& [name, range] :
         {std::pair("scale", options.scale), std::pair("ratio", options.ratio)})
        if (!(range[0] > 0 && range[0] <= range[1] && range[1] <= 1e6))
            throw ValueError(str("RandomResizedCrop: ", name,
                                 " must be two numbers in (0, 1e6], the smaller one first: ",
                                 range[0], " and ", range[1]));
}

ImageWindow RandomResizedCrop::window(Size2 image, SampleRandom& random) const {
    return random_window(
        image, options_, [&] { return random.uniform(); },
        [&](std::int64_t n) { return random.below(n); });
}

Tensor RandomResizedCrop::resize(const Tensor& windows) const {
    return resized(checked_bytes("RandomResizedCrop", windows), size_, options_.filter);
}

Tensor RandomResizedCrop::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    const Tensor dense = checked_bytes("RandomResizedCrop", images);
    if (std::ssize(random) != dense.size(0))
        throw UsageError(str("RandomResizedCrop: needs one SampleRandom per image: ", dense.size(0),
                             " images, ", random.size(), " given"));
    const Size2 from = size_of_images(dense);
    Tensor result = result_for(dense, size_);
    if (result.numel() == 0) return result;
    const std::uint8_t* plane = dense.data<std::uint8_t>();
    std::uint8_t* out = result.data<std::uint8_t>();
    const std::int64_t planes = dense.numel() / dense.size(0) / (from.h * from.w);
    for (SampleRandom& draw : random) {
        const ImageWindow part = window(from, draw);
        Resampler resample(part.size, size_, options_.filter);
        for (std::int64_t p = 0; p < planes; ++p, plane += from.h * from.w) {
            resample(plane + part.top * from.w + part.left, from.w, out);
            out += size_.h * size_.w;
        }
    }
    return result;
}

}  // namespace axle::data
