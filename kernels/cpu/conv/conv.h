// Helpers of the convolutions: packing into panels, compiled for each instruction set, the split of
// the work, and the correlation that computes convolutions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/ops/conv.h"
#include "kernels/walk.h"

namespace axle::kernels {

// A run of `count` elements in each line of a panel that are contiguous in the source.
struct PanelRun {
    std::int64_t from;  // offset from the start of the source, in elements
    std::int64_t to;    // position of the first element within a line
    std::int64_t count;
};

// Copies use full vectors. They may read up to this number of elements after the end of the source,
// and write this number after the end of the panel.
inline constexpr std::int64_t kPanelSlack = kMaxTileColumns / 2;

template <class T>
struct ConvKernels {
    // Packs lines of `width` elements, ordered by channel and tap:
    //     to[(c taps + t) width + run.to + i] = source[c channel_step + tap[t] + run.from + i]
    // Runs must be in order and without gaps. If they do not fill a line, the end of the line is
    // undefined.
    void (*pack_taps)(const PanelRun* runs, std::int64_t run_count, const T* source,
                      std::int64_t channels, std::int64_t channel_step, const std::int64_t* tap,
                      std::int64_t taps, std::int64_t width, T* to);
    // Packs n lines that are `step` apart in the source:
    //     to[p width + run.to + i] = source[p step + run.from + i]
    void (*pack_lines)(const PanelRun* runs, std::int64_t run_count, const T* source,
                       std::int64_t step, std::int64_t n, std::int64_t width, T* to);
    // Adds n elements to `to`. n is a multiple of 16.
    void (*add)(const T* from, std::int64_t n, T* to);
};
template <class T>
const ConvKernels<T>& conv_kernels();
template <>
const ConvKernels<float>& conv_kernels();
template <>
const ConvKernels<double>& conv_kernels();

// The target depth of a block (channels times taps). The panels of a block of this depth stay in L1
// and L2.
inline constexpr std::int64_t kConvDepth = 384;
// A thread takes tasks in groups of up to kConvParallel / 2 multiply-adds, or one larger task at a
// time.
inline constexpr std::int64_t kConvParallel = std::int64_t{1} << 18;

// Splits n into the smallest number of parts with at most `most` elements. Returns the size of
// equal parts, rounded up to a multiple of quantum, or n if n <= most.
inline std::int64_t even_cut(std::int64_t n, std::int64_t most, std::int64_t quantum) {
    return n <= most ? n : round_up(divide_up(n, divide_up(n, most)), quantum);
}

// Returns whether a convolution with this weight reads each pixel once, at the position of the
// output pixel.
inline bool reads_pixels_once(const ConvGeometry& geometry, const View& w) {
    const auto plain = [](const ConvAxis& axis) { return axis.stride == 1 && axis.padding == 0; };
    return w.shape[2] == 1 && w.shape[3] == 1 && plain(geometry.h) && plain(geometry.w);
}

// Returns a contiguous copy in scratch memory, converted to `dtype`.
View contiguous_copy(Cpu& on, Scratch& scratch, const ConstView& from, DType dtype);

// Returns images with one row of all pixels. Copies them to scratch memory unless they already have
// this layout.
ConstView with_one_row(Cpu& on, Scratch& scratch, const ConstView& images);

// Returns the number of rows of a register tile for a matrix of m rows, so that all tiles have
// nearly equal sizes.
template <class T>
std::int64_t tile_rows(std::int64_t m) {
    const std::int64_t most = gemm_kernels<T>().max_rows;
    return round_up(divide_up(m, divide_up(m, most)), 2);
}

// --- correlation: out[m, pixel] = bias[m] + the sum over channels k and taps t of
//     a[m, (k, t)] source[k, pixel * step + offset[t]]

// The taps along one dimension. Output pixel i reads source elements i * step + offset[t] for all
// t.
struct Taps {
    std::int64_t source = 0, out = 0;  // sizes of the dimension in source and output
    std::int64_t step = 1;
    std::int64_t count = 0;
    std::int64_t* index = nullptr;  // indices of the taps in the weight
    std::int64_t* offset = nullptr;
    std::int64_t low = 0, high = 0;  // minimum and maximum of the offsets
    bool all = true;                 // whether the list contains all taps of the weight

    void add(std::int64_t i, std::int64_t at) {
        low = count == 0 ? at : std::min(low, at);
        high = count == 0 ? at : std::max(high, at);
        index[count] = i, offset[count++] = at;
    }
    std::int64_t span() const { return high - low; }
};

// Returns taps with memory for up to `most` elements.
inline Taps make_taps(Scratch& scratch, std::int64_t source, std::int64_t out, std::int64_t most) {
    Taps taps;
    taps.source = source, taps.out = out;
    taps.index = scratch.take<std::int64_t>(most);
    taps.offset = scratch.take<std::int64_t>(most);
    return taps;
}
// Returns the taps of a convolution along one dimension.
inline Taps forward_taps(Scratch& scratch, std::int64_t source, std::int64_t out,
                         std::int64_t kernel, const ConvAxis& axis) {
    Taps taps = make_taps(scratch, source, out, kernel);
    taps.step = axis.stride;
    for (std::int64_t i = 0; i < kernel; ++i) taps.add(i, i * axis.dilation - axis.padding);
    return taps;
}

// The parameters of a correlation. The matrix a is read from a contiguous weight.
struct Correlation {
    ConstView source;  // shape [N, groups * channels, ...]
    View out;          // shape [N, groups * m, ...]
    Taps h, w;
    std::int64_t groups, m, channels;
    // The strides of the weight; a[m, (k, i, j)] of group g is
    //     weight[g group_step + m row_step + k channel_step + i kernel_w + j].
    std::int64_t group_step, row_step, channel_step, kernel_w, kernel_size;
    ConstView bias;
};

// Computes the correlation of the source with the weight. The bits of the result do not depend on
// the number of threads.
template <class T>
void correlate(Cpu& on, const Correlation& problem, const T* weight);

// Returns whether direct() supports a correlation and is faster than correlate(). That is so for
// groups with few output channels.
bool suits_direct(const Correlation& problem);
// Computes what correlate() computes, without packing the source.
template <class T>
void direct(Cpu& on, const Correlation& problem, const T* weight);

// The same for conv2d_weight_gradient().
template <class T>
bool suits_direct_weight(const ConstView& dy, const ConvGeometry& geometry, const View& dw);
template <class T>
void direct_weight_gradient(Cpu& on, const ConstView& dy, const ConstView& x,
                            const ConvGeometry& geometry, const View& dw);

}  // namespace axle::kernels
