// Group norm. A group consists of adjacent channels of one sample, which are contiguous. A task
// processes complete groups. It reads each group from memory once for the statistics. In the
// backward pass, these are the sums of dy and dy (x - mean) of every channel. If the group fits in
// L2, the task reads it from there for the result, which is written once. For the gradients of
// weight and bias, the sums of all samples are added in order.
#include <cmath>

#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/norm/channel_spans.h"
#include "kernels/ops/channel_norm.h"

namespace axle::kernels {
namespace {

// The split of x into groups. Group r, in row-major order of [N, groups], consists of `width`
// planes, beginning with plane r * width.
struct Cut {
    std::int64_t batch, channels, groups, plane, width, count, grain;

    Cut(const ConstView& x, std::int64_t parts)
        : batch(x.shape[0]), channels(x.shape[1]), groups(parts) {
        plane = x.numel() / (batch * channels);
        width = channels / groups;
        count = batch * groups;
        grain = divide_up(kGrain, width * plane);
    }
    std::int64_t size() const { return width * plane; }  // elements per group
    std::int64_t slots() const { return slots_for(count, grain); }
    std::int64_t first_channel(std::int64_t group) const { return group % groups * width; }
    // Calls f(plane, planes, offset, length) for the spans of a group in order. A span is one or
    // more complete planes, or a piece of one plane.
    template <class F>
    void spans(std::int64_t group, F f) const {
        const std::int64_t together = std::max<std::int64_t>(1, kPiece / plane);
        for (std::int64_t p = 0; p < width; p += together)
            for (std::int64_t i = 0; i < plane; i += kPiece)
                f(p, std::min(together, width - p), group * size() + p * plane + i,
                  std::min(kPiece, plane - i));
    }
};

template <class L>
Moments group_moments(const Cut& cut, const DensePlanes& x, std::int64_t group, L* buffer) {
    Moments moments;
    const std::int64_t start = group * cut.size();
    for (std::int64_t i = 0; i < cut.size(); i += kPiece) {
        const std::int64_t n = std::min(kPiece, cut.size() - i);
        add_planes(x.load<L>(start + i, n, buffer), 1, n, &moments);
    }
    return moments;
}

template <class L>
void forward(Cpu& on, const ConstView& x, std::int64_t groups, const ConstView& weight,
             const ConstView& bias, double eps, const View& y, const View& mean, const View& rstd) {
    const Cut cut(x, groups);
    Scratch scratch(on);
    const DensePlanes from = planes_of(on, scratch, x);
    const L* w = vector_or<L>(scratch, weight, cut.channels, L(1));
    const L* shift = vector_or<L>(scratch, bias, cut.channels, L(0));
    L* const buffers = scratch.take<L>(cut.slots() * 2 * kPiece);
    L* const coefficients = scratch.take<L>(cut.slots() * 2 * cut.width);
    parallel_slots(cut.count, cut.grain, cut.slots(), [&](std::int64_t group, std::int64_t slot) {
        L* const buffer = buffers + slot * 2 * kPiece;
        L *const centre = coefficients + slot * 2 * cut.width, *const scale = centre + cut.width;
        const Moments moments = group_moments(cut, from, group, buffer);
        const L m = static_cast<L>(moments.mean);
        const L r = static_cast<L>(1 / std::sqrt(moments.variance() + eps));
        mean.as<L>()[group] = m, rstd.as<L>()[group] = r;
        const std::int64_t first = cut.first_channel(group);
        std::fill_n(centre, cut.width, m);
        for (std::int64_t p = 0; p < cut.width; ++p) scale[p] = r * w[first + p];
        cut.spans(group, [&](std::int64_t p, std::int64_t planes, std::int64_t offset,
                             std::int64_t length) {
            const Target<L> to(y, offset, planes * length, buffer + kPiece);
            affine_planes(AffineSpan<L>{from.load<L>(offset, planes * length, buffer), centre + p,
                                        scale + p, shift + first + p, to.lanes()},
                          planes, length);
            to.store();
        });
    });
}

// Computes dweight and dbias from the sums of each sample and channel.
template <class L>
void gather_sums(const Cut& cut, const double* sums, const double* products, const ConstView& rstd,
                 const View& dweight, const View& dbias) {
    parallel_ranges(
        cut.channels, divide_up(kGrain, cut.batch), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t c = begin; c < end; ++c) {
                double of_weight = 0, of_bias = 0;
                for (std::int64_t n = 0; n < cut.batch; ++n) {
                    const L r = rstd.as<L>()[n * cut.groups + c / cut.width];
                    of_weight += products[n * cut.channels + c] * static_cast<double>(r);
                    of_bias += sums[n * cut.channels + c];
                }
                if (dweight.data != nullptr) dweight.as<L>()[c] = static_cast<L>(of_weight);
                if (dbias.data != nullptr) dbias.as<L>()[c] = static_cast<L>(of_bias);
            }
        });
}

// The coefficients of dx = a dy + b (x - mean) + c in one group.
template <class L>
struct GroupGradient {
    L *centre, *a, *b, *c;  // one value per channel of the group

    GroupGradient(L* memory, std::int64_t width)
        : centre(memory), a(memory + width), b(memory + 2 * width), c(memory + 3 * width) {}
    void set(const Cut& cut, L mean, L rstd, const L* weight, const double* sum,
             const double* product) const {
        const auto r = static_cast<double>(rstd), size = static_cast<double>(cut.size());
        double mean_g = 0, mean_gd = 0;
        for (std::int64_t p = 0; p < cut.width; ++p) {
            mean_g += static_cast<double>(weight[p]) * sum[p];
            mean_gd += static_cast<double>(weight[p]) * product[p];
        }
        mean_g /= size, mean_gd /= size;
        std::fill_n(centre, cut.width, mean);
        for (std::int64_t p = 0; p < cut.width; ++p) a[p] = rstd * weight[p];
        std::fill_n(b, cut.width, static_cast<L>(-r * r * r * mean_gd));
        std::fill_n(c, cut.width, static_cast<L>(-r * mean_g));
    }
};

template <class L>
void backward(Cpu& on, const ConstView& dy_given, const ConstView& x_given, std::int64_t groups,
              const ConstView& weight, const ConstView& mean, const ConstView& rstd, const View& dx,
              const View& dweight, const View& dbias) {
    const Cut cut(x_given, groups);
    Scratch scratch(on);
    const DensePlanes x = planes_of(on, scratch, x_given), dy = planes_of(on, scratch, dy_given);
    const L* w = vector_or<L>(scratch, weight, cut.channels, L(1));
    L* const buffers = scratch.take<L>(cut.slots() * 3 * kPiece);
    L* const coefficients = scratch.take<L>(cut.slots() * 4 * cut.width);
    double* const sums = scratch.take<double>(2 * cut.batch * cut.channels);
    double* const products = sums + cut.batch * cut.channels;
    std::fill_n(sums, 2 * cut.batch * cut.channels, 0.0);
    parallel_slots(cut.count, cut.grain, cut.slots(), [&](std::int64_t group, std::int64_t slot) {
        L *const dy_buffer = buffers + slot * 3 * kPiece, *const x_buffer = dy_buffer + kPiece;
        const GroupGradient<L> of(coefficients + slot * 4 * cut.width, cut.width);
        double *const sum = sums + group * cut.width, *const product = products + group * cut.width;
        std::fill_n(of.centre, cut.width, mean.as<L>()[group]);
        cut.spans(group, [&](std::int64_t p, std::int64_t planes, std::int64_t offset,
                             std::int64_t length) {
            span_sums_planes(dy.load<L>(offset, planes * length, dy_buffer),
                             x.load<L>(offset, planes * length, x_buffer), of.centre + p, planes,
                             length, sum + p, product + p);
        });
        if (dx.data == nullptr) return;
        of.set(cut, mean.as<L>()[group], rstd.as<L>()[group], w + cut.first_channel(group), sum,
               product);
        cut.spans(group, [&](std::int64_t p, std::int64_t planes, std::int64_t offset,
                             std::int64_t length) {
            const std::int64_t n = planes * length;
            const Target<L> to(dx, offset, n, x_buffer + kPiece);
            gradient_planes(
                GradientSpan<L>{dy.load<L>(offset, n, dy_buffer), x.load<L>(offset, n, x_buffer),
                                of.centre + p, of.a + p, of.b + p, of.c + p, to.lanes()},
                planes, length);
            to.store();
        });
    });
    if (dweight.data != nullptr || dbias.data != nullptr)
        gather_sums<L>(cut, sums, products, rstd, dweight, dbias);
}

}  // namespace

void group_norm(Cpu& on, ConstView x, std::int64_t groups, ConstView weight, ConstView bias,
                double eps, View y, View mean, View rstd) {
    if (x.numel() == 0) return;
    visit_f32_f64(rstd.dtype,
                  [&]<class L>() { forward<L>(on, x, groups, weight, bias, eps, y, mean, rstd); });
}

void group_norm_backward(Cpu& on, ConstView dy, ConstView x, std::int64_t groups, ConstView weight,
                         ConstView mean, ConstView rstd, View dx, View dweight, View dbias) {
    visit_f32_f64(rstd.dtype, [&]<class L>() {
        if (x.numel() > 0)
            return backward<L>(on, dy, x, groups, weight, mean, rstd, dx, dweight, dbias);
        for (const View& v : {dweight, dbias})
            if (v.data != nullptr) std::fill_n(v.as<L>(), x.shape[1], L(0));
    });
}

}  // namespace axle::kernels
