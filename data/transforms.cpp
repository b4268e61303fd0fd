// The loops over images in this file run on the calling thread, because loaders have workers and a
// batch of small images fits into the cache. (FusedByteTransform uses several threads when no
// worker calls it.)
#include "data/transforms.h"

#include <algorithm>
#include <cstring>
#include <typeinfo>

#include "core/ops.h"
#include "data/files/fused_byte_transform.h"
#include "data/files/rows.h"
#include "data/image_checks.h"
#include "data/images/resize.h"
#include "kernels/error.h"
#include "kernels/ops/decode.h"

namespace axle::data {
namespace {

// Checks that the images are on the CPU and have at least three dimensions and a compute dtype, and
// returns them as a contiguous tensor.
Tensor checked(const char* op, const Tensor& images) {
    check_images(op, images);
    if (!is_compute(images.dtype()))
        throw DTypeError(
            str(op, ": images cannot have a storage dtype: they are ", images.dtype()));
    return contiguous(images);
}

Tensor checked(const char* op, const Tensor& images, std::span<SampleRandom> random) {
    Tensor dense = checked(op, images);
    if (std::ssize(random) != images.size(0))
        throw UsageError(str(op, ": needs one SampleRandom per image: ", images.size(0),
                             " images, ", random.size(), " given"));
    return dense;
}

// The number of images in a batch, and the size of one image. `planes` is the product of the
// dimensions between n and height.
struct Geometry {
    explicit Geometry(const Shape& shape)
        : images(shape[0]), height(shape.back(2)), width(shape.back(1)) {
        for (int d = 1; d < shape.size() - 2; ++d) planes *= shape[d];
    }
    std::int64_t images, planes = 1, height, width;
};

void check_size(const char* op, Size2 size) {
    if (size.h < 1 || size.w < 1) throw ValueError(str(op, ": sizes must be positive: ", size));
}

// Copies one row of a crop window. `row` is null if the row is outside the image. Pixels outside
// the image are copied from `blank`.
void crop_row(const std::byte* row, std::int64_t width, std::int64_t left, std::int64_t columns,
              const std::byte* blank, std::int64_t element, std::byte* to) {
    const std::int64_t begin =
        row == nullptr ? columns : std::clamp<std::int64_t>(-left, 0, columns);
    const std::int64_t end = std::clamp<std::int64_t>(width - left, begin, columns);
    const auto copy = [&](const std::byte* from, std::int64_t first, std::int64_t last) {
        if (first < last)
            std::memcpy(to + first * element, from,
                        static_cast<std::size_t>((last - first) * element));
    };
    copy(blank, 0, begin);
    if (begin < end) copy(row + (left + begin) * element, begin, end);
    copy(blank, end, columns);
}

// Returns a window of `size` of each image i. The first pixel of the window is at corner_of(i),
// which can be outside the image. Pixels outside the image get the value `fill`.
template <class F>
Tensor crop(const Tensor& images, Size2 size, double fill, F&& corner_of) {
    const Geometry from(images.shape());
    Shape shape = images.shape();
    shape[shape.size() - 2] = size.h;
    shape[shape.size() - 1] = size.w;
    Tensor result = empty(shape, {.dtype = images.dtype()});
    if (result.numel() == 0) return result;
    const Tensor blank = full({size.w}, fill, {.dtype = images.dtype()});
    const auto* blank_row = static_cast<const std::byte*>(blank.raw_data());
    const std::int64_t element = size_of(images.dtype());
    const auto* plane = static_cast<const std::byte*>(images.raw_data());
    auto* to = static_cast<std::byte*>(result.raw_data());
    for (std::int64_t i = 0; i < from.images; ++i) {
        const Corner corner = corner_of(i);
        for (std::int64_t p = 0; p < from.planes; ++p) {
            for (std::int64_t y = corner.top; y < corner.top + size.h; ++y) {
                const bool inside = y >= 0 && y < from.height;
                crop_row(inside ? plane + y * from.width * element : nullptr, from.width,
                         corner.left, size.w, blank_row, element, to);
                to += size.w * element;
            }
            plane += from.height * from.width * element;
        }
    }
    return result;
}

Size2 padded(Size2 image, Size2 padding) {
    return {image.h + 2 * padding.h, image.w + 2 * padding.w};
}

// Returns the first row or column of a center crop, as in torchvision. If the image is smaller than
// the crop and the padding is odd, the end gets one pixel more than the start. Otherwise half of
// the margin is rounded to the nearest integer, with ties to even, as in Python.
std::int64_t center_start(std::int64_t size, std::int64_t crop) {
    if (crop > size) return -((crop - size) / 2);
    const std::int64_t margin = size - crop, half = margin / 2;
    return half + margin % 2 * (half % 2);
}

// An element of N bytes. Access through std::byte is valid for elements of any type.
template <std::size_t N>
struct Element {
    std::byte bytes[N];
};

template <std::size_t N>
void flip_rows(const void* from, void* to, std::int64_t rows, std::int64_t width) {
    const auto* row = static_cast<const Element<N>*>(from);
    auto* out = static_cast<Element<N>*>(to);
    for (std::int64_t y = 0; y < rows; ++y, row += width, out += width) {
        std::int64_t x = 0;
        for (; N == 1 && x + 8 <= width; x += 8) {  // 8 bytes at once
            std::uint64_t word = 0;
            std::memcpy(&word, row + width - 8 - x, sizeof word);
            word = __builtin_bswap64(word);
            std::memcpy(out + x, &word, sizeof word);
        }
        std::reverse_copy(row, row + width - x, out + x);
    }
}

auto flip_rows_of(DType dtype) {
    switch (size_of(dtype)) {
        case 1:
            return flip_rows<1>;
        case 2:
            return flip_rows<2>;
        case 4:
            return flip_rows<4>;
        default:
            return flip_rows<8>;
    }
}

// Computes y = (x - mean) / std in blocks of a fixed length, which the compiler can vectorize.
template <class T>
void normalize_plane(const T* x, T* y, std::int64_t n, double mean, double std) {
    const T m = static_cast<T>(mean), s = static_cast<T>(std);
    constexpr std::int64_t kBlock = 16;
    std::int64_t i = 0;
    for (; i + kBlock <= n; i += kBlock) {
        T block[kBlock];
        std::memcpy(block, x + i, sizeof block);
        for (T& value : block) value = (value - m) / s;
        std::memcpy(y + i, block, sizeof block);
    }
    for (; i < n; ++i) y[i] = (x[i] - m) / s;
}

// Returns the result of a transform. Throws ShapeError unless it has `count` images. `images` are
// those that it received, or all images of the dataset.
Tensor checked_count(Tensor result, const Tensor& images, std::size_t count) {
    const auto n = static_cast<std::int64_t>(count);
    if (!result.defined() || result.dim() == 0 || result.size(0) != n) {
        Shape received = images.shape();
        if (!received.empty()) received[0] = n;
        throw ShapeError(
            str("TransformedDataset: the transform must return as many images as it receives: it "
                "received ",
                received, " and returned ",
                result.defined() ? str(result.shape()) : "an undefined tensor"));
    }
    return result;
}

}  // namespace

std::uint64_t SampleRandom::epoch_key(std::uint64_t seed, std::int64_t epoch) {
    const auto words = kernels::Philox{.seed = seed}.block(static_cast<std::uint64_t>(epoch));
    return std::uint64_t{words[0]} << 32 | words[1];
}

Compose::Compose(std::vector<Transform> transforms) {
    for (std::size_t i = 0; i < transforms.size(); ++i)
        if (!transforms[i]) throw UsageError(str("Compose: transform ", i, " is empty"));
    for (std::span<const Transform> rest = transforms; !rest.empty();) {
        const std::optional<FusedByteTransform> fused = FusedByteTransform::of(rest);
        transforms_.push_back(fused ? Transform(*fused) : rest[0]);
        rest = rest.subspan(fused ? fused->length() : 1);
    }
}

Tensor Compose::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    return apply_from(0, images, random);
}

Tensor Compose::apply_from(std::size_t first, const Tensor& images,
                           std::span<SampleRandom> random) const {
    Tensor result = images;
    for (const Transform& transform : std::span(transforms_).subspan(first))
        result = transform(result, random);
    return result;
}

Tensor Compose::apply_rows(const Tensor& images, std::span<const std::int64_t> indices,
                           std::span<SampleRandom> random) const {
    const FusedByteTransform* first =
        transforms_.empty() ? nullptr : transforms_[0].target<FusedByteTransform>();
    if (first == nullptr) return (*this)(select_rows(images, indices), random);
    return apply_from(1, first->apply_rows(images, indices, random), random);
}

Tensor ToFloat::operator()(const Tensor& images, std::span<SampleRandom>) const {
    const Tensor dense = checked("ToFloat", images);
    if (is_floating(images.dtype())) return to(dense, f32);
    if (images.dtype() != u8)
        throw DTypeError(
            str("ToFloat: images must be uint8 or floating: they are ", images.dtype()));
    Tensor result = empty(dense.shape());
    static const kernels::ByteScale unit(0, 1);
    const std::int64_t n = dense.numel();
    const kernels::ByteWindow all = {.x = dense.data<std::uint8_t>(),
                                     .planes = 1,
                                     .height = 1,
                                     .width = n,
                                     .rows = 1,
                                     .columns = n};
    kernels::scale_bytes(all, &unit, 1, result.data<float>());
    return result;
}

Normalize::Normalize(std::vector<double> mean, std::vector<double> std)
    : mean_(std::move(mean)), std_(std::move(std)) {
    if (mean_.empty() || mean_.size() != std_.size())
        throw ValueError(
            str("Normalize: mean and std must not be empty and must have the same length: ",
                "mean has ", mean_.size(), " elements, std has ", std_.size()));
    for (const double s : std_)
        if (!(static_cast<float>(s) > 0))
            throw ValueError(str("Normalize: each std must be positive as a float32: ", s));
}

Tensor Normalize::operator()(const Tensor& images, std::span<SampleRandom>) const {
    const Tensor dense = checked("Normalize", images);
    if (dense.dtype() != f32 && dense.dtype() != f64)
        throw DTypeError(str("Normalize: images must be float32 or float64: they are ",
                             dense.dtype(), "; apply ToFloat first"));
    const std::int64_t channels = dense.dim() == 3 ? 1 : dense.size(-3);
    if (mean_.size() != 1 && std::ssize(mean_) != channels)
        throw ShapeError(str("Normalize: mean must have 1 element or one for each channel: it has ",
                             mean_.size(), " elements, images are ", dense.shape()));
    Tensor result = empty(dense.shape(), {.dtype = dense.dtype()});
    const std::int64_t pixels = dense.size(-2) * dense.size(-1);
    const std::int64_t planes = pixels == 0 ? 0 : dense.numel() / pixels;
    visit_f32_f64(dense.dtype(), [&]<class T>() {
        const T* x = dense.data<T>();
        T* y = result.data<T>();
        for (std::int64_t p = 0; p < planes; ++p, x += pixels, y += pixels) {
            const auto c = static_cast<std::size_t>(mean_.size() == 1 ? 0 : p % channels);
            normalize_plane(x, y, pixels, mean_[c], std_[c]);
        }
    });
    return result;
}

CenterCrop::CenterCrop(Size2 size) : size_(size) { check_size("CenterCrop", size); }

Tensor CenterCrop::operator()(const Tensor& images, std::span<SampleRandom>) const {
    const Tensor dense = checked("CenterCrop", images);
    const Corner corner = {center_start(dense.size(-2), size_.h),
                           center_start(dense.size(-1), size_.w)};
    return crop(dense, size_, 0, [&](std::int64_t) { return corner; });
}

RandomCrop::RandomCrop(Size2 size, RandomCropOptions options) : size_(size), options_(options) {
    check_size("RandomCrop", size);
    if (options.padding.h < 0 || options.padding.w < 0)
        throw ValueError(str("RandomCrop: the padding must not be negative: ", options.padding));
}

Tensor RandomCrop::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    const Tensor dense = checked("RandomCrop", images, random);
    const Size2 size = {dense.size(-2), dense.size(-1)};
    if (!fits(size))
        throw ShapeError(str("RandomCrop: the crop size ", size_,
                             " does not fit into the padded size ", padded(size, options_.padding),
                             ": images ", dense.shape()));
    return crop(dense, size_, options_.fill,
                [&](std::int64_t i) { return corner(size, random[static_cast<std::size_t>(i)]); });
}

bool RandomCrop::fits(Size2 images) const {
    const Size2 all = padded(images, options_.padding);
    return all.h >= size_.h && all.w >= size_.w;
}

Corner RandomCrop::corner(Size2 images, SampleRandom& random) const {
    const Size2 pad = options_.padding, all = padded(images, pad);
    const std::int64_t top = random.below(all.h - size_.h + 1);
    return {top - pad.h, random.below(all.w - size_.w + 1) - pad.w};
}

RandomHorizontalFlip::RandomHorizontalFlip(double p) : p_(p) {
    if (!(p >= 0 && p <= 1))
        throw ValueError(str("RandomHorizontalFlip: p must be in [0, 1]: ", p));
}

Tensor RandomHorizontalFlip::operator()(const Tensor& images,
                                        std::span<SampleRandom> random) const {
    const Tensor dense = checked("RandomHorizontalFlip", images, random);
    Tensor result = empty(dense.shape(), {.dtype = dense.dtype()});
    if (result.numel() == 0) return result;
    const Geometry size(dense.shape());
    const std::int64_t rows = size.planes * size.height;
    const std::int64_t bytes = rows * size.width * size_of(dense.dtype());
    const auto flip = flip_rows_of(dense.dtype());
    const auto* from = static_cast<const std::byte*>(dense.raw_data());
    auto* to = static_cast<std::byte*>(result.raw_data());
    for (SampleRandom& draw : random) {
        if (flips(draw)) {
            flip(from, to, rows, size.width);
        } else {
            std::memcpy(to, from, static_cast<std::size_t>(bytes));
        }
        from += bytes;
        to += bytes;
    }
    return result;
}

TransformedDataset::TransformedDataset(const DatasetRef& dataset, Transform transform,
                                       TransformedOptions options)
    : dataset_(dataset.pointer()), transform_(std::move(transform)), options_(std::move(options)) {
    if (!dataset_) throw UsageError("TransformedDataset: the dataset must not be null");
    if (!transform_) throw UsageError("TransformedDataset: the transform must not be empty");
}

std::vector<SampleRandom> TransformedDataset::random_of(
    std::span<const std::int64_t> indices) const {
    const std::uint64_t key = SampleRandom::epoch_key(options_.seed, epoch_);
    std::vector<SampleRandom> random;
    random.reserve(indices.size());
    for (const std::int64_t index : indices) random.emplace_back(key, index);
    return random;
}

const RandomResizedCrop* TransformedDataset::first_crop() const {
    const auto* compose = transform_.target<Compose>();
    if (compose == nullptr) return transform_.target<RandomResizedCrop>();
    return compose->transforms_.empty() ? nullptr
                                        : compose->transforms_[0].target<RandomResizedCrop>();
}

Tree TransformedDataset::get(std::int64_t index) const {
    std::vector<SampleRandom> random = random_of({&index, 1});
    const auto* compose = transform_.target<Compose>();
    const RandomResizedCrop* crop = first_crop();
    std::optional<Tree> sample;
    if (crop != nullptr)
        sample = dataset_->get_window(index, options_.key,
                                      [&](Size2 size) { return crop->window(size, random[0]); });
    const bool is_window = sample.has_value();
    if (!is_window) sample = dataset_->get(index);
    Tree& image = (*sample)[options_.key];
    const Tensor one = image.tensor().unsqueeze(0);
    Tensor result = is_window ? crop->resize(one) : transform_(one, random);
    if (is_window && compose != nullptr) result = compose->apply_from(1, result, random);
    image = checked_count(result, one, 1).select(0, 0);
    return *std::move(sample);
}

Tree TransformedDataset::get_batch(std::span<const std::int64_t> indices) const {
    const Dataset& dataset = *dataset_;
    if (!dataset.has_uniform_shapes()) return Dataset::get_batch(indices);
    std::vector<SampleRandom> random = random_of(indices);
    const auto* compose = transform_.target<Compose>();
    if (compose != nullptr && typeid(dataset) == typeid(TensorDataset)) {
        const auto make = [&](const Tensor& rows) {
            return checked_count(compose->apply_rows(rows, indices, random), rows, random.size());
        };
        return static_cast<const TensorDataset&>(dataset).get_batch(indices, options_.key, make);
    }
    Tree batch = dataset.get_batch(indices);
    Tree& images = batch[options_.key];
    const Tensor all = images.tensor();
    images = checked_count(transform_(all, random), all, random.size());
    return batch;
}

std::shared_ptr<const Dataset> TransformedDataset::in_epoch(std::int64_t epoch) const {
    auto copy = std::make_shared<TransformedDataset>(*this);
    copy->epoch_ = epoch;
    if (auto dataset = dataset_->in_epoch(epoch)) copy->dataset_ = std::move(dataset);
    return copy;
}

}  // namespace axle::data
