#include "data/files/fused_byte_transform.h"

#include "core/ops.h"
#include "data/files/rows.h"
#include "kernels/thread_pool.h"

namespace axle::data {

std::optional<FusedByteTransform> FusedByteTransform::of(std::span<const Transform> transforms) {
    FusedByteTransform fused;
    std::size_t at = 0;
    const auto take = [&]<class T>(std::optional<T>& step) {
        const T* found = at < transforms.size() ? transforms[at].target<T>() : nullptr;
        if (found == nullptr) return;
        step = *found;
        ++at;
    };
    std::optional<ToFloat> to_float;
    std::optional<Normalize> normalize;
    take(fused.crop_), take(fused.flip_), take(to_float);
    if (!to_float) return std::nullopt;
    take(normalize);
    fused.steps_.assign(transforms.begin(), transforms.begin() + static_cast<std::ptrdiff_t>(at));
    if (fused.crop_) {
        const double fill = fused.crop_->options_.fill;
        fused.fill_ = *full({1}, fill, {.dtype = u8}).data<std::uint8_t>();
    }
    if (!normalize) {
        fused.scales_.emplace_back(0.0f, 1.0f);
        return fused;
    }
    for (std::size_t c = 0; c < normalize->mean_.size(); ++c)
        fused.scales_.emplace_back(static_cast<float>(normalize->mean_[c]),
                                   static_cast<float>(normalize->std_[c]));
    return fused;
}

bool FusedByteTransform::can_fuse(const Tensor& images, std::int64_t batch,
                                  std::span<SampleRandom> random) const {
    if (!images.defined() || !images.device().is_cpu() || images.dtype() != u8 ||
        images.dim() < 3 || images.numel() == 0 || batch == 0)
        return false;
    const std::int64_t channels = images.dim() == 3 ? 1 : images.size(-3);
    if (scales_.size() != 1 && std::ssize(scales_) != channels) return false;
    if ((crop_ || flip_) && std::ssize(random) != batch) return false;
    return !crop_ || crop_->fits({images.size(-2), images.size(-1)});
}

template <class Row>
Tensor FusedByteTransform::apply_fused(const Tensor& images, std::int64_t batch,
                                       std::span<SampleRandom> random, Row row) const {
    const Size2 size = {images.size(-2), images.size(-1)};
    const Size2 cut = crop_ ? crop_->size_ : size;
    Shape shape = images.shape();
    shape[0] = batch;
    shape[shape.size() - 2] = cut.h;
    shape[shape.size() - 1] = cut.w;
    Tensor result = empty(shape);

    const std::int64_t bytes = images.numel() / images.size(0), floats = result.numel() / batch;
    kernels::parallel(batch, [&](std::int64_t i) {
        kernels::ByteWindow window = {.x = images.data<std::uint8_t>() + row(i) * bytes,
                                      .planes = bytes / (size.h * size.w),
                                      .height = size.h,
                                      .width = size.w,
                                      .rows = cut.h,
                                      .columns = cut.w,
                                      .fill = fill_};
        if (crop_) {
            const Corner corner = crop_->corner(size, random[static_cast<std::size_t>(i)]);
            window.top = corner.top;
            window.left = corner.left;
        }
        if (flip_) window.mirrored = flip_->flips(random[static_cast<std::size_t>(i)]);
        kernels::scale_bytes(window, scales_.data(), std::ssize(scales_),
                             result.data<float>() + i * floats);
    });
    return result;
}

Tensor FusedByteTransform::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    if (images.defined() && images.dim() > 0 && can_fuse(images, images.size(0), random))
        return apply_fused(contiguous(images), images.size(0), random,
                           [](std::int64_t i) { return i; });
    Tensor result = images;
    for (const Transform& step : steps_) result = step(result, random);
    return result;
}

Tensor FusedByteTransform::apply_rows(const Tensor& images, std::span<const std::int64_t> indices,
                                      std::span<SampleRandom> random) const {
    if (!images.is_contiguous() || !can_fuse(images, std::ssize(indices), random))
        return (*this)(select_rows(images, indices), random);
    return apply_fused(images, std::ssize(indices), random,
                       [&](std::int64_t i) { return indices[static_cast<std::size_t>(i)]; });
}

}  // namespace axle::data
