#include "kernels/cpu/conv/pixel_rows.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu/conv/conv.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/matmul.h"

namespace axle::kernels {
namespace {

// The largest number of pixels of an image of y, and of an image of x.
constexpr std::int64_t kMaxPixels = 16, kMaxInputPixels = 256;
// The largest number of pixels of an image for which winograd() is slower, because it has to
// transform the weight for few tiles.
constexpr std::int64_t kMaxWinogradPixels = 4;
// The minimum number of rows. The order of the terms of a product with fewer rows depends on the
// strides.
constexpr std::int64_t kMinRows = kFewRows + 1;
// The minimum number of channels. With fewer, copying the images takes longer than the product.
constexpr std::int64_t kMinChannels = 128;
// The maximum number of elements of an unfolded matrix. With more rows, the time to pack the weight
// matters less.
constexpr std::int64_t kMaxUnfolded = std::int64_t{1} << 22;
// The number of elements that a thread copies without asking for more work.
constexpr std::int64_t kCopiedAtOnce = std::int64_t{1} << 13;
// The number of elements between rows of an unfolded matrix. Interleaving can write some of them.
constexpr std::int64_t kGap = kMaxInterleaved;

template <class AnyView>
std::int64_t pixels_of(const AnyView& images) {
    return images.shape[2] * images.shape[3];
}

// Returns whether channels and pixels of an image are contiguous.
template <class AnyView>
bool is_dense(const AnyView& images) {
    return images.stride[3] == 1 && images.stride[2] == images.shape[3] &&
           images.stride[1] == images.shape[2] * images.shape[3];
}

// Returns a contiguous 4-d view of other memory with v's shape.
View contiguous_at(void* data, View v) {
    v.data = data;
    v.stride[3] = 1, v.stride[2] = v.shape[3];
    v.stride[1] = v.shape[2] * v.shape[3], v.stride[0] = v.shape[1] * v.stride[1];
    return v;
}
// Returns a contiguous matrix.
template <class T>
View matrix(T* data, std::int64_t rows, std::int64_t columns) {
    View v;
    v.data = data, v.dtype = dtype_of<T>, v.ndim = 2;
    v.shape[0] = rows, v.shape[1] = columns;
    v.stride[0] = columns, v.stride[1] = 1;
    return v;
}
ConstView transposed(ConstView v) {
    std::swap(v.shape[0], v.shape[1]);
    std::swap(v.stride[0], v.stride[1]);
    return v;
}
// Returns a contiguous weight as a matrix [O, C KH KW].
template <class AnyView>
AnyView as_matrix(AnyView w) {
    w.ndim = 2, w.shape[1] *= pixels_of(w);
    w.stride[0] = w.shape[1], w.stride[1] = 1;
    return w;
}
// Returns a weight as a matrix. Copies it unless it is contiguous.
ConstView load_matrix(Cpu& on, Scratch& scratch, const ConstView& w) {
    return as_matrix(w.contiguous() ? w : ConstView(contiguous_copy(on, scratch, w, w.dtype)));
}

// Returns the pixels of x, or of its gradient, that y's pixels read.
template <class AnyView>
AnyView read_pixels(AnyView x, const ConvGeometry& geometry, const ConstView& y) {
    x.shape[2] = y.shape[2], x.shape[3] = y.shape[3];
    x.stride[2] *= geometry.h.stride, x.stride[3] *= geometry.w.stride;
    return x;
}

// Calls copy_part(image, channel, channels) for parts of all images.
template <class F>
void for_each_part(const ConstView& images, F&& copy_part) {
    const std::int64_t channels = images.shape[1];
    const std::int64_t most =
        std::min(channels, round_up(divide_up(kCopiedAtOnce, pixels_of(images)), kMaxInterleaved));
    const std::int64_t parts = divide_up(channels, most), tasks = images.shape[0] * parts;
    parallel_slots(tasks, 1, slots_for(tasks, 1), [&](std::int64_t task, std::int64_t) {
        const std::int64_t channel = task % parts * most;
        copy_part(task / parts, channel, std::min(most, channels - channel));
    });
}

// Copies images [N, C, H, W] to a matrix [N H W, C].
template <class T>
View to_rows(Cpu& on, Scratch& scratch, ConstView images) {
    if (!is_dense(images)) images = contiguous_copy(on, scratch, images, images.dtype);
    const std::int64_t channels = images.shape[1], pixels = pixels_of(images);
    T* const rows = scratch.take<T>(images.shape[0] * pixels * channels);
    for_each_part(images, [&](std::int64_t image, std::int64_t channel, std::int64_t count) {
        const T* from = images.as<T>() + image * images.stride[0] + channel * pixels;
        T* to = rows + image * pixels * channels + channel;
        for (std::int64_t c = 0; c < count; c += kMaxInterleaved, to += kMaxInterleaved) {
            const T* lines[kMaxInterleaved];
            for (const T*& line : lines) line = from, from += pixels;
            gemm_kernels<T>().interleave(lines, kMaxInterleaved, pixels, to, channels);
        }
    });
    return matrix(rows, images.shape[0] * pixels, channels);
}

// Copies a matrix [N H W, C] to images [N, C, H, W].
template <class T>
void from_rows(Cpu& on, const View& matrix, const View& images) {
    Scratch scratch(on);
    const std::int64_t channels = images.shape[1], pixels = pixels_of(images);
    const View dense =
        is_dense(images) ? images : contiguous_at(scratch.take<T>(images.numel()), images);
    for_each_part(images, [&](std::int64_t image, std::int64_t channel, std::int64_t count) {
        T* const to = dense.as<T>() + image * dense.stride[0] + channel * pixels;
        for (std::int64_t first = 0; first < pixels; first += kMaxInterleaved) {
            const std::int64_t together = std::min(kMaxInterleaved, pixels - first);
            const T* lines[kMaxInterleaved];
            for (std::int64_t p = 0; p < together; ++p)
                lines[p] = matrix.as<T>() + (image * pixels + first + p) * channels + channel;
            gemm_kernels<T>().interleave(lines, static_cast<int>(together), count, to + first,
                                         pixels);
        }
    });
    if (!is_dense(images)) copy(on, dense, images);
}

// The position of the pixel of x that a tap of a pixel of y reads, or -1 if it is in the padding.
class TapPixels {
  public:
    TapPixels(const ConvGeometry& geometry, const ConstView& w, const ConstView& x)
        : geometry_(geometry), kernel_w_(w.shape[3]), h_(x.shape[2]), w_(x.shape[3]) {}

    std::int64_t at(std::int64_t row, std::int64_t column, std::int64_t tap) const {
        const std::int64_t r = place(geometry_.h, row, tap / kernel_w_);
        const std::int64_t q = place(geometry_.w, column, tap % kernel_w_);
        return r < 0 || r >= h_ || q < 0 || q >= w_ ? -1 : r * w_ + q;
    }

  private:
    static std::int64_t place(const ConvAxis& axis, std::int64_t i, std::int64_t tap) {
        return i * axis.stride - axis.padding + tap * axis.dilation;
    }

    const ConvGeometry& geometry_;
    std::int64_t kernel_w_, h_, w_;
};

// Returns a matrix [N R Q, C KH KW] with the elements of x that the pixels of y read, and zeros for
// the padding.
template <class T>
View unfold(Cpu& on, Scratch& scratch, const ConstView& x, const ConstView& w,
            const ConvGeometry& geometry, const ConstView& y) {
    const std::int64_t taps = pixels_of(w);
    if (taps == 1) return to_rows<T>(on, scratch, read_pixels(x, geometry, y));
    const View of_x = to_rows<T>(on, scratch, x);
    const std::int64_t channels = x.shape[1], columns = channels * taps, pixels = pixels_of(y);
    View unfolded = matrix<T>(nullptr, y.shape[0] * pixels, columns);
    unfolded.stride[0] = columns + kGap;
    unfolded.data = scratch.take<T>(unfolded.shape[0] * unfolded.stride[0]);
    T* const zeros = scratch.take<T>(channels);
    std::fill_n(zeros, channels, T(0));
    const TapPixels places(geometry, w, x);
    const std::int64_t group = divide_up(kCopiedAtOnce, columns);
    const std::int64_t slots = slots_for(unfolded.shape[0], group);
    parallel_slots(unfolded.shape[0], group, slots, [&](std::int64_t row, std::int64_t) {
        const std::int64_t image = row / pixels, pixel = row % pixels;
        const T* from = of_x.as<T>() + image * pixels_of(x) * channels;
        T* const to = unfolded.as<T>() + row * unfolded.stride[0];
        for (std::int64_t tap = 0; tap < taps; tap += kMaxInterleaved) {
            const std::int64_t together = std::min(kMaxInterleaved, taps - tap);
            const T* lines[kMaxInterleaved];
            for (std::int64_t t = 0; t < together; ++t) {
                const std::int64_t at = places.at(pixel / y.shape[3], pixel % y.shape[3], tap + t);
                lines[t] = at < 0 ? zeros : from + at * channels;
            }
            gemm_kernels<T>().interleave(lines, static_cast<int>(together), channels, to + tap,
                                         taps);
        }
    });
    return unfolded;
}

// Adds the elements of the matrix, with the layout of unfold(), to the pixels of dx that they
// belong to. The results are rows of pixels.
template <class T>
View fold(Scratch& scratch, const View& unfolded, const ConstView& dy, const ConstView& w,
          const ConvGeometry& geometry, const View& dx) {
    const std::int64_t taps = pixels_of(w), channels = dx.shape[1];
    const std::int64_t to_pixels = pixels_of(dx), from_pixels = pixels_of(dy);
    const View rows = matrix(scratch.take<T>(dx.numel()), dx.shape[0] * to_pixels, channels);
    const TapPixels places(geometry, w, dx);
    parallel_slots(
        dx.shape[0], 1, slots_for(dx.shape[0], 1), [&](std::int64_t image, std::int64_t) {
            T* const to = rows.as<T>() + image * to_pixels * channels;
            std::fill_n(to, to_pixels * channels, T(0));
            for (std::int64_t pixel = 0; pixel < from_pixels; ++pixel) {
                const T* from =
                    unfolded.as<T>() + (image * from_pixels + pixel) * unfolded.stride[0];
                for (std::int64_t tap = 0; tap < taps; ++tap) {
                    const std::int64_t at =
                        places.at(pixel / dy.shape[3], pixel % dy.shape[3], tap);
                    if (at < 0) continue;
                    T* const sum = to + at * channels;
                    for (std::int64_t c = 0; c < channels; ++c) sum[c] += from[c * taps + tap];
                }
            }
        });
    return rows;
}

}  // namespace

bool suits_pixel_rows(const ConvGeometry& geometry, const ConstView& x, const ConstView& w,
                      const ConstView& y) {
    const std::int64_t pixels = pixels_of(y), taps = pixels_of(w);
    const std::int64_t rows = y.shape[0] * pixels;
    const bool is_small = pixels <= kMaxPixels && pixels_of(x) <= kMaxInputPixels &&
                          rows * std::max(taps * w.shape[1], w.shape[0]) <= kMaxUnfolded;
    // Groups of 4 elements are interleaved without writing to memory between them.
    const bool is_even = pixels % 4 == 0 && pixels_of(x) % 4 == 0 &&
                         w.shape[0] % kMaxInterleaved == 0 && w.shape[1] % kMaxInterleaved == 0;
    const bool has_stride = geometry.h.stride != 1 || geometry.w.stride != 1;
    return is_small && is_even && (w.dtype == DType::f32 || w.dtype == DType::f64) &&
           geometry.groups == 1 && rows >= kMinRows &&
           std::min(w.shape[0], w.shape[1]) >= kMinChannels &&
           (taps == 1 ? geometry.h.padding == 0 && geometry.w.padding == 0
                      : has_stride || pixels <= kMaxWinogradPixels);
}

void pixel_rows_forward(Cpu& on, const ConstView& x, const ConstView& w, const ConstView& bias,
                        const ConvGeometry& geometry, const View& y) {
    visit_f32_f64(y.dtype, [&]<class T>() {
        Scratch scratch(on);
        const View rows = unfold<T>(on, scratch, x, w, geometry, y);
        const std::int64_t channels = y.shape[1];
        const View product =
            matrix(scratch.take<T>(rows.shape[0] * channels), rows.shape[0], channels);
        matmul(on, rows, transposed(load_matrix(on, scratch, w)), product, {.bias = bias});
        from_rows<T>(on, product, y);
    });
}

void pixel_rows_transposed(Cpu& on, const ConstView& dy, const ConstView& w,
                           const ConvGeometry& geometry, const View& dx) {
    const bool is_pointwise = pixels_of(w) == 1;
    if (is_pointwise && pixels_of(dx) != pixels_of(dy)) fill(on, 0.0, dx);
    visit_f32_f64(dx.dtype, [&]<class T>() {
        Scratch scratch(on);
        const View rows = to_rows<T>(on, scratch, dy);
        const ConstView weight = load_matrix(on, scratch, w);
        const std::int64_t columns = weight.shape[1];
        const View product =
            matrix(scratch.take<T>(rows.shape[0] * columns), rows.shape[0], columns);
        matmul(on, rows, weight, product);
        if (is_pointwise) return from_rows<T>(on, product, read_pixels(dx, geometry, dy));
        from_rows<T>(on, fold<T>(scratch, product, dy, w, geometry, dx), dx);
    });
}

void pixel_rows_weight(Cpu& on, const ConstView& dy, const ConstView& x,
                       const ConvGeometry& geometry, const View& dw) {
    visit_f32_f64(dw.dtype, [&]<class T>() {
        Scratch scratch(on);
        const View of_y = to_rows<T>(on, scratch, dy);
        const View of_x = unfold<T>(on, scratch, x, dw, geometry, dy);
        if (dw.contiguous()) return matmul(on, transposed(of_y), of_x, as_matrix(dw));
        const View product = matrix(scratch.take<T>(dw.numel()), of_y.shape[1], of_x.shape[1]);
        matmul(on, transposed(of_y), of_x, product);
        copy(on, contiguous_at(product.data, dw), dw);
    });
}

}  // namespace axle::kernels
