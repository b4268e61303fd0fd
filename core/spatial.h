// Convolution and pooling of signals and volumes, and pooling ops that are not in
// core/functional.h. core/ops.h states the rules of all ops.
//
// Signals are [N, C, L] or [C, L]. Images are [N, C, H, W] or [C, H, W]. Volumes are [N, C, D, H,
// W] or [C, D, H, W]. A result has a batch dimension N if its operand has one.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <utility>

#include "core/functional.h"
#include "core/size2.h"
#include "core/tensor.h"

namespace axle {

// A depth, a height and a width. A single integer sets all three, as in PyTorch: `stride = 2`.
struct Size3 {
    std::int64_t d = 0, h = 0, w = 0;

    constexpr Size3() = default;
    constexpr Size3(std::int64_t all) : d(all), h(all), w(all) {}  // NOLINT: 2 means 2 x 2 x 2
    constexpr Size3(std::int64_t depth, std::int64_t height, std::int64_t width)
        : d(depth), h(height), w(width) {}

    bool operator==(const Size3&) const = default;
};

// Prints the size as "[d, h, w]".
inline std::ostream& operator<<(std::ostream& out, const Size3& size) {
    return out << '[' << size.d << ", " << size.h << ", " << size.w << ']';
}

// --- convolution (spatial/convolution.cpp, spatial/volumes.cpp); with the rules and errors of
// conv2d() and conv_transpose2d() in core/functional.h
struct Conv1dOptions {
    std::int64_t stride = 1;
    std::int64_t padding = 0;  // zeros added on both sides
    std::int64_t dilation = 1;
    std::int64_t groups = 1;
};
struct Conv3dOptions {
    Size3 stride = 1;
    Size3 padding = 0;  // zeros added on both sides
    Size3 dilation = 1;
    std::int64_t groups = 1;
};
// Return the convolution of x with weight, plus bias [out], which can be undefined. For signals,
// weight is [out, C / groups, kernel]. For volumes, it is [out, C / groups, kernel d, kernel h,
// kernel w]. conv3d() and conv_transpose3d() use memory for kernel d copies of a volume.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv3dOptions& options = {});
struct ConvTranspose1dOptions {
    std::int64_t stride = 1;
    std::int64_t padding = 0;         // removed from both sides of the result
    std::int64_t output_padding = 0;  // added to the end of the result; below max(stride, dilation)
    std::int64_t groups = 1;
    std::int64_t dilation = 1;
};
struct ConvTranspose3dOptions {
    Size3 stride = 1;
    Size3 padding = 0;         // removed from both sides of the result
    Size3 output_padding = 0;  // added to the end of the result; below max(stride, dilation)
    std::int64_t groups = 1;
    Size3 dilation = 1;
};
// Return the transposed convolution, the gradient of the convolution with respect to its input.
// weight is [C, out / groups, kernel] or [C, out / groups, kernel d, kernel h, kernel w]; bias is
// [out] or undefined.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose1dOptions& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose3dOptions& options = {});

// --- maxima of windows (spatial/pool.cpp); with the rules and errors of max_pool2d() in
// core/functional.h. Indices (i64) are the positions of the maxima in their signal, or d * H * W +
// h * W + w in their volume.
struct MaxPool1dOptions {
    std::optional<std::int64_t> stride = {};  // defaults to the kernel size
    std::int64_t padding = 0;                 // at most half the kernel
    std::int64_t dilation = 1;
    bool ceil_mode = false;  // rounds output sizes up; the last window can be incomplete
};
struct MaxPool3dOptions {
    std::optional<Size3> stride = {};  // defaults to the kernel size
    Size3 padding = 0;                 // at most half the kernel
    Size3 dilation = 1;
    bool ceil_mode = false;
};
Tensor max_pool1d(const Tensor& x, std::int64_t kernel, const MaxPool1dOptions& options = {});
Tensor max_pool3d(const Tensor& x, Size3 kernel, const MaxPool3dOptions& options = {});
std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, std::int64_t kernel,
                                                  const MaxPool1dOptions& options = {});
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, Size3 kernel,
                                                  const MaxPool3dOptions& options = {});

// --- means of windows (spatial/pool.cpp); with the rules and errors of avg_pool2d() in
// core/functional.h
struct AvgPool1dOptions {
    std::optional<std::int64_t> stride = {};  // defaults to the kernel size
    std::int64_t padding = 0;                 // at most half the kernel
    bool ceil_mode = false;
    bool count_include_pad = true;  // whether the divisor includes padding
};
struct AvgPool3dOptions {
    std::optional<Size3> stride = {};  // defaults to the kernel size
    Size3 padding = 0;                 // at most half the kernel
    bool ceil_mode = false;
    bool count_include_pad = true;                      // whether the divisor includes padding
    std::optional<std::int64_t> divisor_override = {};  // replaces the number of elements; not 0
};
Tensor avg_pool1d(const Tensor& x, std::int64_t kernel, const AvgPool1dOptions& options = {});
Tensor avg_pool3d(const Tensor& x, Size3 kernel, const AvgPool3dOptions& options = {});

// --- windows of (almost) equal size (spatial/pool.cpp). Divide each signal or volume into `size`
// windows and return the mean or the maximum of each window. Throw the errors of
// adaptive_avg_pool2d() in core/functional.h.
Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t size);
Tensor adaptive_avg_pool3d(const Tensor& x, Size3 size);
Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t size);
Tensor adaptive_max_pool3d(const Tensor& x, Size3 size);
std::pair<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, std::int64_t size);
std::pair<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& x, Size3 size);

// --- maxima of windows at random distances (spatial/fractional_pool.cpp)
struct Scale3 {
    double d, h, w;
    constexpr Scale3(double all) : d(all), h(all), w(all) {}  // NOLINT(google-explicit-constructor)
    constexpr Scale3(double depth, double height, double width) : d(depth), h(height), w(width) {}
};
struct FractionalMaxPool2dOptions {
    std::optional<Size2> output_size = {};    // set either this or output_ratio
    std::optional<Scale2> output_ratio = {};  // in (0, 1); output size = floor(input size * ratio)
    // Numbers in [0, 1) that select the windows, [N, C, 2] (without a batch [1, C, 2]): for the
    // width and for the height. If undefined, they are drawn from the default generator.
    Tensor random_samples = {};
};
struct FractionalMaxPool3dOptions {
    std::optional<Size3> output_size = {};    // as in FractionalMaxPool2dOptions
    std::optional<Scale3> output_ratio = {};  // as in FractionalMaxPool2dOptions
    // The numbers of FractionalMaxPool2dOptions, but [N, C, 3]: for the depth, height and width.
    Tensor random_samples = {};
};
// Divide each image or volume into windows of the kernel's size at random distances and return the
// maximum of each window. Use memory for all elements of all windows. Throw ValueError unless
// exactly one of output_size and output_ratio is set, and for a kernel, size or ratio out of range.
// Throw ShapeError if kernel + size - 1 exceeds the size of x, or if a dimension other than N is
// empty.
Tensor fractional_max_pool2d(const Tensor& x, Size2 kernel,
                             const FractionalMaxPool2dOptions& options);
Tensor fractional_max_pool3d(const Tensor& x, Size3 kernel,
                             const FractionalMaxPool3dOptions& options);
std::pair<Tensor, Tensor> fractional_max_pool2d_with_indices(
    const Tensor& x, Size2 kernel, const FractionalMaxPool2dOptions& options);
std::pair<Tensor, Tensor> fractional_max_pool3d_with_indices(
    const Tensor& x, Size3 kernel, const FractionalMaxPool3dOptions& options);

// --- norms of windows (spatial/lp_pool.cpp)
struct LpPool1dOptions {
    std::optional<std::int64_t> stride = {};  // defaults to the kernel size
    bool ceil_mode = false;
};
struct LpPool2dOptions {
    std::optional<Size2> stride = {};  // defaults to the kernel size
    bool ceil_mode = false;
};
struct LpPool3dOptions {
    std::optional<Size3> stride = {};  // defaults to the kernel size
    bool ceil_mode = false;
};
// Return (sum of x^p over each window)^(1 / p), with p = norm_type. As in PyTorch, a negative sum
// gives NaN unless 1 / p is an integer, and the sum of an incomplete window is scaled to a full
// window. Throw the errors of avg_pool2d(), and ValueError if norm_type is 0.
Tensor lp_pool1d(const Tensor& x, double norm_type, std::int64_t kernel,
                 const LpPool1dOptions& options = {});
Tensor lp_pool2d(const Tensor& x, double norm_type, Size2 kernel,
                 const LpPool2dOptions& options = {});
Tensor lp_pool3d(const Tensor& x, double norm_type, Size3 kernel,
                 const LpPool3dOptions& options = {});

// --- the inverse of maxima of windows (spatial/unpool.cpp)
struct MaxUnpool1dOptions {
    std::optional<std::int64_t> stride = {};  // defaults to the kernel size
    std::int64_t padding = 0;
    // The size of the result. It can differ from the default, (size of x - 1) * stride + kernel - 2
    // * padding, by less than the stride.
    std::optional<std::int64_t> output_size = {};
};
struct MaxUnpool2dOptions {
    std::optional<Size2> stride = {};
    Size2 padding = 0;
    std::optional<Size2> output_size = {};
};
struct MaxUnpool3dOptions {
    std::optional<Size3> stride = {};
    Size3 padding = 0;
    std::optional<Size3> output_size = {};
};
// Return zeros to which the elements of x are copied, at the indices (i64, x's shape) that
// max_pool1d_with_indices(), max_pool2d_with_indices() or max_pool3d_with_indices() returned. If an
// index is repeated, one of its elements is copied. Throw ShapeError if x and the indices differ in
// shape or if a dimension other than N is empty. Throw DTypeError unless x is floating and the
// indices are i64, ValueError for a kernel, stride, padding or size out of range, and IndexError
// for an index outside of the result.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, std::int64_t kernel,
                    const MaxUnpool1dOptions& options = {});
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, Size2 kernel,
                    const MaxUnpool2dOptions& options = {});
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, Size3 kernel,
                    const MaxUnpool3dOptions& options = {});

}  // namespace axle
