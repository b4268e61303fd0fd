// Convolutions with 3 x 3 kernels by Winograd's algorithm F(2 x 2, 3 x 3): A. Lavin and S. Gray,
// "Fast Algorithms for Convolutional Neural Networks", 2016.
//
// The output is divided into tiles of 2 x 2 pixels. A tile d of 4 x 4 source pixels and a kernel g
// have 16 transformed numbers (points) each: v = B^T d B and u = G g G^T. The sum of u * v over the
// channels, for each point, is a matrix product. The tile of the output is A^T (the sums) A. So a
// tile needs 16 multiplications per channel and output channel instead of 36.
#pragma once

#include <cstdint>

#include "kernels/cpu/conv/conv.h"

namespace axle::kernels {

inline constexpr std::int64_t kWinogradPoints = 16;
// The maximum number of transformed elements in a row of tiles. It limits the scratch memory of
// each thread for wide images, because a task has at least one row.
inline constexpr std::int64_t kWinogradMaxRow = std::int64_t{1} << 22;

struct WinogradKernels {
    // Transforms the kernels of n channels for `rows` output channels:
    //     from[(c 9 + order[i 3 + j]) rows + r] is element (i, j) of the kernel, and
    //     to[point point_step + c rows + r] is the result.
    void (*transform_weights)(const float* from, const std::int64_t* order, std::int64_t n,
                              std::int64_t rows, float* to, std::int64_t point_step);
    // Copies four source rows, which are row_step apart, to the arrays of a row of n tiles:
    //     to[(i 4 + j) to_step + t] = from[i row_step + 2 t + j].
    // Reads and writes up to 2 kPanelSlack elements after the end of a row or an array.
    void (*gather_tiles)(const float* from, std::int64_t row_step, std::int64_t n, float* to,
                         std::int64_t to_step);
    // Transforms n tiles of one channel, where n is a multiple of the number of lanes:
    //     d[(i 4 + j) step + t] is element (i, j) of tile t, and
    //     to[point point_step + panel panel_step + column] is the result of tile t, with
    //     t = panel width + column and width = two vectors.
    void (*transform_source)(const float* d, std::int64_t step, std::int64_t n, float* to,
                             std::int64_t point_step, std::int64_t panel_step);
    // Transforms the sums of n tiles, where n is a multiple of the number of lanes, and adds the
    // bias: pixel (i, j) of tile t is stored in lines[i line_step + 2 t + j], and
    // sums[point point_step + t] are the sums of tile t.
    void (*transform_sums)(const float* sums, std::int64_t point_step, std::int64_t n, float bias,
                           float* lines, std::int64_t line_step);

    // For the gradient of the weights, each lane is another channel. Transform the pixels of a row
    // of n tiles for `rows` output channels, or for two vectors of input channels:
    //     from[i row_step + (2 t + j) pixel_step + channel] is pixel (i, j) of tile t, and
    //     to[point point_step + t width + channel] is the result, where width is `rows` or two
    //     vectors.
    // transform_dy() reads and writes up to kPanelSlack elements after the last channel.
    void (*transform_dy)(const float* from, std::int64_t row_step, std::int64_t pixel_step,
                         std::int64_t n, std::int64_t rows, float* to, std::int64_t point_step);
    void (*transform_x)(const float* from, std::int64_t row_step, std::int64_t pixel_step,
                        std::int64_t n, float* to, std::int64_t point_step);
    // Transforms the sums of one vector of channels: sums[point point_step + channel] are the sums,
    // and taps[(3 i + j) lanes + channel] is element (i, j) of the kernel's gradient.
    void (*transform_du)(const float* sums, std::int64_t point_step, float* taps);
};
const WinogradKernels& winograd_kernels();

// Returns the distance between the arrays of consecutive points, which have n elements. It is an
// odd number of cache lines, so that equal positions of all points are in different sets of a
// cache.
inline std::int64_t winograd_point_step(std::int64_t n) {
    constexpr std::int64_t kLine = 16;
    return (divide_up(n, kLine) | 1) * kLine;
}

// Returns whether winograd() supports a correlation, is faster than the direct method, and needs
// little scratch memory.
bool suits_winograd(const Correlation& problem);
// Computes what correlate() computes. The bits of the result do not depend on the number of
// threads.
void winograd(Cpu& on, const Correlation& problem, const float* weight);

// The same for conv2d_weight_gradient().
bool suits_winograd(const ConvGeometry& geometry, const ConstView& dy, const View& dw);
void winograd_weight_gradient(Cpu& on, const ConstView& dy, const ConstView& x,
                              const ConvGeometry& geometry, const View& dw);

}  // namespace axle::kernels
