// Batch norm. Channels are processed in groups. If a group fits in L2 (or, if there are many
// groups, in one task's part of L3), a task reads it from memory once for the statistics (in the
// backward pass, for the sums of dy and dy (x - mean)). It reads the group again from the cache for
// the result, which is written once. For larger groups, the statistics of parts are merged in
// order, and the data are read from memory a second time for the result.
//
// A plane is the S elements of one sample and channel. Planes with at least 64 elements, and all
// planes in f64, are processed as spans with one coefficient each. Smaller planes are processed as
// rows of many adjacent channels, in which each channel's coefficient is repeated S times; the
// statistics are sums over the columns of these rows. The split depends on the shape only.
#include <cmath>
#include <type_traits>

#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/norm/batch_norm_cut.h"
#include "kernels/cpu/norm/channel_spans.h"
#include "kernels/ops/channel_norm.h"

namespace axle::kernels {
namespace {

using Cut = BatchNormCut;
using Block = ChannelBlock;

// Adds the column sums of a block to the sums of its channels. In a row of the block, channel p has
// the columns p * plane ... (p + 1) * plane - 1.
template <class T>
void fold(const T* columns, const Block& block, std::int64_t plane, double* sum) {
    for (std::int64_t p = 0; p < block.channels; ++p)
        for (std::int64_t i = p * plane; i < (p + 1) * plane; ++i)
            sum[p] += static_cast<double>(columns[i]);
}
// Fills row with each channel's coefficient, repeated for all elements of its plane, and returns
// row.
template <class L>
const L* spread(const L* coefficients, const Block& block, std::int64_t plane, L* row) {
    for (std::int64_t p = 0; p < block.channels; ++p)
        std::fill_n(row + p * plane, plane, coefficients[block.channel + p]);
    return row;
}

// The scratch memory of a slot. Tasks that run at the same time use different slots.
template <class L>
struct Buffers {
    L* spans;  // Cut::spans() buffers of Cut::span() elements
    L* rows;   // 5 rows, for coefficients and column sums
    double *columns, *channels;

    Buffers(Scratch& scratch, const Cut& cut)
        : spans(scratch.take<L>(cut.slots() * cut.spans() * cut.span())),
          rows(scratch.take<L>(cut.slots() * 5 * cut.span())),
          columns(scratch.take<double>(cut.slots() * cut.span())),
          channels(scratch.take<double>(cut.slots() * 2 * cut.width)) {}
    Buffers of(const Cut& cut, std::int64_t slot) const {
        Buffers own = *this;
        own.spans += slot * cut.spans() * cut.span(), own.rows += slot * 5 * cut.span();
        own.columns += slot * cut.span(), own.channels += slot * 2 * cut.width;
        return own;
    }
};

// Adds a tile of rows to the moments of the channels in a block.
void add_rows(const float* const* row, int count, const Block& block, std::int64_t plane,
              const Buffers<float>& buffers, Moments* moments) {
    const std::int64_t n = block.channels * plane;
    const auto elements = static_cast<double>(count * plane);
    double *const sum = buffers.channels, *const square = sum + block.channels;
    std::fill_n(sum, 2 * block.channels, 0.0);
    if (moments->count == 0) {
        std::fill_n(buffers.columns, n, 0.0);
        for (int r = 0; r < count; r += 8)
            sum_columns(row + r, std::min(8, count - r), n, buffers.columns);
        fold(buffers.columns, block, plane, sum);
    }
    float *const centre = buffers.rows, *const sums = centre + n, *const squares = sums + n;
    for (std::int64_t p = 0; p < block.channels; ++p) {
        const double near = moments->count == 0 ? sum[p] / elements : moments[p].mean;
        std::fill_n(centre + p * plane, plane, static_cast<float>(near));
    }
    std::fill_n(sums, 2 * n, 0.0f);
    for (int r = 0; r < count; r += 8)
        span_sums_rows(nullptr, row + r, std::min(8, count - r), centre, n, sums, squares);
    std::fill_n(sum, 2 * block.channels, 0.0);
    fold(sums, block, plane, sum);
    fold(squares, block, plane, square);
    for (std::int64_t p = 0; p < block.channels; ++p)
        moments[p].add_deviations(elements, static_cast<double>(centre[p * plane]), sum[p],
                                  square[p]);
}

template <class L>
void block_moments(const Cut& cut, const Block& block, const DensePlanes& x,
                   const Buffers<L>& buffers, Moments* moments) {
    if constexpr (std::is_same_v<L, float>) {
        const std::int64_t n = block.channels * cut.plane;
        const float* row[kTile];
        for (std::int64_t u = block.first; cut.rows && u < block.last; u += kTile) {
            const int count = static_cast<int>(std::min(kTile, block.last - u));
            for (int r = 0; r < count; ++r)
                row[r] = x.load<L>(cut.offset(u + r, block.channel), n, buffers.spans + r * n);
            add_rows(row, count, block, cut.plane, buffers, moments);
        }
    }
    for (std::int64_t u = block.first; !cut.rows && u < block.last; ++u) {
        const std::int64_t length = cut.length(u);
        const L* from =
            x.load<L>(cut.offset(u, block.channel), block.channels * length, buffers.spans);
        add_planes(from, block.channels, length, moments);
    }
}

// Computes y = (x - centre) scale + shift, with one coefficient per channel.
template <class L>
void apply_affine(const Cut& cut, const Block& block, const DensePlanes& x, const L* centre,
                  const L* scale, const L* shift, const Buffers<L>& buffers, const View& y) {
    const std::int64_t row = block.channels * cut.plane;
    AffineSpan<L> span = {nullptr, centre + block.channel, scale + block.channel,
                          shift + block.channel, nullptr};
    if (cut.rows) {
        span.centre = spread(centre, block, cut.plane, buffers.rows);
        span.scale = spread(scale, block, cut.plane, buffers.rows + row);
        span.shift = spread(shift, block, cut.plane, buffers.rows + 2 * row);
    }
    // The loop runs backwards, because the end of the block is most likely to be in the cache.
    for (std::int64_t u = block.last - 1; u >= block.first; --u) {
        const std::int64_t length = cut.length(u), n = block.channels * length;
        const std::int64_t offset = cut.offset(u, block.channel);
        const Target<L> to(y, offset, n, buffers.spans + n);
        span.x = x.load<L>(offset, n, buffers.spans), span.y = to.lanes();
        if constexpr (std::is_same_v<L, float>)
            cut.rows ? affine_row(span, n) : affine_planes(span, block.channels, length);
        else
            affine_planes(span, block.channels, length);
        to.store();
    }
}

// For each group of channels, runs first(block, slot) for all its blocks, then finish(block) once,
// then last(block, slot) for all its blocks.
template <class First, class Finish, class Last>
void run(const Cut& cut, First first, Finish finish, Last last) {
    const std::int64_t slots = cut.slots();
    if (cut.parts == 1)
        return parallel_slots(cut.tasks(), cut.grain, slots,
                              [&](std::int64_t task, std::int64_t slot) {
                                  const Block block = cut.block(task);
                                  first(block, slot);
                                  finish(block);
                                  last(block, slot);
                              });
    parallel_slots(cut.tasks(), cut.grain, slots,
                   [&](std::int64_t task, std::int64_t slot) { first(cut.block(task), slot); });
    for (std::int64_t group = 0; group < cut.groups(); ++group)
        finish(cut.block(group * cut.parts));
    parallel_slots(cut.tasks(), cut.grain, slots,
                   [&](std::int64_t task, std::int64_t slot) { last(cut.block(task), slot); });
}

// Computes running += momentum (newest - running) for each channel.
template <class L, class Newest>
void update_running(Scratch& scratch, const View& running, double momentum, Newest newest) {
    if (running.data == nullptr) return;
    const std::int64_t n = running.shape[0];
    L* const buffer = scratch.take<L>(n);
    const L* before = load_lanes<L>(running.data, running.dtype, running.stride[0], n, buffer);
    for (std::int64_t c = 0; c < n; ++c)
        buffer[c] =
            static_cast<L>((1 - momentum) * static_cast<double>(before[c]) + momentum * newest(c));
    store_lanes<L>(buffer, running.data, running.dtype, running.stride[0], n);
}

template <class L>
void forward(Cpu& on, const ConstView& x, const ConstView& weight, const ConstView& bias,
             double eps, const View& y, const View& mean, const View& rstd,
             const View& running_mean, const View& running_var, double momentum) {
    const Cut cut(x, std::is_same_v<L, float>);
    Scratch scratch(on);
    const DensePlanes from = planes_of(on, scratch, x);
    const L* w = vector_or<L>(scratch, weight, cut.channels, L(1));
    const L* shift = vector_or<L>(scratch, bias, cut.channels, L(0));
    L* const scale = scratch.take<L>(cut.channels);
    Moments* const moments = scratch.take<Moments>(cut.parts * cut.channels);
    std::fill_n(moments, cut.parts * cut.channels, Moments());
    const Buffers<L> all(scratch, cut);
    run(
        cut,
        [&](const Block& block, std::int64_t slot) {
            block_moments(cut, block, from, all.of(cut, slot),
                          moments + block.part * cut.channels + block.channel);
        },
        [&](const Block& block) {
            for (std::int64_t c = block.channel; c < block.channel + block.channels; ++c) {
                for (std::int64_t part = 1; part < cut.parts; ++part)
                    moments[c].add(moments[part * cut.channels + c]);
                mean.as<L>()[c] = static_cast<L>(moments[c].mean);
                rstd.as<L>()[c] = static_cast<L>(1 / std::sqrt(moments[c].variance() + eps));
                scale[c] = rstd.as<L>()[c] * w[c];
            }
        },
        [&](const Block& block, std::int64_t slot) {
            apply_affine(cut, block, from, mean.as<const L>(), scale, shift, all.of(cut, slot), y);
        });
    update_running<L>(scratch, running_mean, momentum,
                      [&](std::int64_t c) { return moments[c].mean; });
    update_running<L>(scratch, running_var, momentum,
                      [&](std::int64_t c) { return moments[c].squares / (moments[c].count - 1); });
}

template <class L>
void apply(Cpu& on, const ConstView& x, const ConstView& mean, const ConstView& rstd,
           const ConstView& weight, const ConstView& bias, const View& y) {
    const Cut cut(x, std::is_same_v<L, float>);
    Scratch scratch(on);
    const DensePlanes from = planes_of(on, scratch, x);
    const L* w = vector_or<L>(scratch, weight, cut.channels, L(1));
    const L* shift = vector_or<L>(scratch, bias, cut.channels, L(0));
    const L* centre = vector_or<L>(scratch, mean, cut.channels, L(0));
    L* const scale = scratch.take<L>(cut.channels);
    for (std::int64_t c = 0; c < cut.channels; ++c) scale[c] = rstd.as<L>()[c] * w[c];
    const Buffers<L> all(scratch, cut);
    parallel_slots(cut.tasks(), cut.grain, cut.slots(), [&](std::int64_t task, std::int64_t slot) {
        apply_affine(cut, cut.block(task), from, centre, scale, shift, all.of(cut, slot), y);
    });
}

// Adds up dy and dy (x - mean) over the planes of a block.
template <class L>
void block_sums(const Cut& cut, const Block& block, const DensePlanes& dy, const DensePlanes& x,
                const L* mean, const Buffers<L>& buffers, double* sum, double* product) {
    if constexpr (std::is_same_v<L, float>) {
        const std::int64_t n = block.channels * cut.plane;
        float *const centre = buffers.rows, *const sums = centre + n, *const products = sums + n;
        const float *dy_row[8], *x_row[8];
        if (cut.rows) spread(mean, block, cut.plane, centre);
        for (std::int64_t u = block.first; cut.rows && u < block.last; u += kTile) {
            std::fill_n(sums, 2 * n, 0.0f);
            const std::int64_t end = std::min(block.last, u + kTile);
            for (std::int64_t v = u; v < end; v += 8) {
                const int count = static_cast<int>(std::min<std::int64_t>(8, end - v));
                for (int r = 0; r < count; ++r) {
                    const std::int64_t offset = cut.offset(v + r, block.channel);
                    dy_row[r] = dy.load<L>(offset, n, buffers.spans + r * n);
                    x_row[r] = x.load<L>(offset, n, buffers.spans + (8 + r) * n);
                }
                span_sums_rows(dy_row, x_row, count, centre, n, sums, products);
            }
            fold(sums, block, cut.plane, sum);
            fold(products, block, cut.plane, product);
        }
    }
    for (std::int64_t u = block.first; !cut.rows && u < block.last; ++u) {
        const std::int64_t length = cut.length(u), n = block.channels * length;
        const std::int64_t offset = cut.offset(u, block.channel);
        span_sums_planes(dy.load<L>(offset, n, buffers.spans),
                         x.load<L>(offset, n, buffers.spans + n), mean + block.channel,
                         block.channels, length, sum, product);
    }
}

// The coefficients of dx = a dy + b (x - mean) + c, with one value per channel.
template <class L>
struct GradientCoefficients {
    const L* mean;
    L *a, *b, *c;
};
template <class L>
void apply_gradient(const Cut& cut, const Block& block, const DensePlanes& dy, const DensePlanes& x,
                    const GradientCoefficients<L>& of, const Buffers<L>& buffers, const View& dx) {
    const std::int64_t row = block.channels * cut.plane, first = block.channel;
    GradientSpan<L> span = {nullptr,      nullptr,      of.mean + first, of.a + first,
                            of.b + first, of.c + first, nullptr};
    if (cut.rows) {
        span.centre = spread(of.mean, block, cut.plane, buffers.rows);
        span.a = spread<L>(of.a, block, cut.plane, buffers.rows + row);
        span.b = spread<L>(of.b, block, cut.plane, buffers.rows + 2 * row);
        span.c = spread<L>(of.c, block, cut.plane, buffers.rows + 3 * row);
    }
    // The loop runs backwards, because the end of the block is most likely to be in the cache.
    for (std::int64_t u = block.last - 1; u >= block.first; --u) {
        const std::int64_t length = cut.length(u), n = block.channels * length;
        const std::int64_t offset = cut.offset(u, first);
        const Target<L> to(dx, offset, n, buffers.spans + 2 * n);
        span.dy = dy.load<L>(offset, n, buffers.spans);
        span.x = x.load<L>(offset, n, buffers.spans + n);
        span.dx = to.lanes();
        if constexpr (std::is_same_v<L, float>)
            cut.rows ? gradient_row(span, n) : gradient_planes(span, block.channels, length);
        else
            gradient_planes(span, block.channels, length);
        to.store();
    }
}

template <class L>
void backward(Cpu& on, const ConstView& dy_given, const ConstView& x_given, const ConstView& weight,
              const ConstView& mean_given, const ConstView& rstd, bool batch_statistics,
              const View& dx, const View& dweight, const View& dbias) {
    const Cut cut(x_given, std::is_same_v<L, float>);
    Scratch scratch(on);
    const DensePlanes x = planes_of(on, scratch, x_given), dy = planes_of(on, scratch, dy_given);
    const L* w = vector_or<L>(scratch, weight, cut.channels, L(1));
    const L* mean = vector_or<L>(scratch, mean_given, cut.channels, L(0));
    L* const coefficients = scratch.take<L>(3 * cut.channels);
    const GradientCoefficients<L> of = {mean, coefficients, coefficients + cut.channels,
                                        coefficients + 2 * cut.channels};
    double* const sums = scratch.take<double>(2 * cut.parts * cut.channels);
    std::fill_n(sums, 2 * cut.parts * cut.channels, 0.0);
    double* const products = sums + cut.parts * cut.channels;
    const Buffers<L> all(scratch, cut);
    const auto elements = static_cast<double>(cut.batch * cut.plane);
    const bool needs_sums = batch_statistics || dweight.data != nullptr || dbias.data != nullptr;
    run(
        cut,
        [&](const Block& block, std::int64_t slot) {
            const std::int64_t at = block.part * cut.channels + block.channel;
            if (needs_sums)
                block_sums(cut, block, dy, x, mean, all.of(cut, slot), sums + at, products + at);
        },
        [&](const Block& block) {
            for (std::int64_t c = block.channel; c < block.channel + block.channels; ++c) {
                for (std::int64_t part = 1; part < cut.parts; ++part) {
                    sums[c] += sums[part * cut.channels + c];
                    products[c] += products[part * cut.channels + c];
                }
                const auto r = static_cast<double>(rstd.as<L>()[c]);
                if (dweight.data != nullptr) dweight.as<L>()[c] = static_cast<L>(products[c] * r);
                if (dbias.data != nullptr) dbias.as<L>()[c] = static_cast<L>(sums[c]);
                const double a = r * static_cast<double>(w[c]);
                of.a[c] = static_cast<L>(a);
                of.b[c] =
                    batch_statistics ? static_cast<L>(-a * r * r * products[c] / elements) : 0;
                of.c[c] = batch_statistics ? static_cast<L>(-a * sums[c] / elements) : 0;
            }
        },
        [&](const Block& block, std::int64_t slot) {
            if (dx.data == nullptr) return;
            const Buffers<L> buffers = all.of(cut, slot);
            if (batch_statistics) return apply_gradient(cut, block, dy, x, of, buffers, dx);
            apply_affine<L>(cut, block, dy, of.c, of.a, of.c, buffers, dx);  // of.c is 0
        });
}

}  // namespace

void batch_norm(Cpu& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd, View running_mean, View running_var, double momentum) {
    visit_f32_f64(rstd.dtype, [&]<class L>() {
        forward<L>(on, x, weight, bias, eps, y, mean, rstd, running_mean, running_var, momentum);
    });
}

void batch_norm_apply(Cpu& on, ConstView x, ConstView mean, ConstView rstd, ConstView weight,
                      ConstView bias, View y) {
    if (x.numel() == 0) return;
    visit_f32_f64(rstd.dtype, [&]<class L>() { apply<L>(on, x, mean, rstd, weight, bias, y); });
}

void batch_norm_backward(Cpu& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, bool batch_statistics, View dx, View dweight, View dbias) {
    visit_f32_f64(rstd.dtype, [&]<class L>() {
        if (x.numel() > 0)
            return backward<L>(on, dy, x, weight, mean, rstd, batch_statistics, dx, dweight, dbias);
        for (const View& v : {dweight, dbias})
            if (v.data != nullptr) std::fill_n(v.as<L>(), x.shape[1], L(0));
    });
}

}  // namespace axle::kernels
