#include "kernels/cpu/pointwise/spans.h"

#include <algorithm>
#include <cassert>

#include "kernels/walk.h"

namespace axle::kernels {
namespace {

// The number of elements per task, which makes the cost of scheduling negligible.
constexpr std::int64_t kTask = 32768;

// Returns the dtype to load or store. Booleans are treated as u8, which has the same
// representation, if the lanes are u8.
DType stored(DType dtype, DType lane) {
    return dtype == DType::boolean && lane == DType::u8 ? DType::u8 : dtype;
}

bool direct(DType dtype, DType lane, std::int64_t stride) {
    return stored(dtype, lane) == lane && stride == 1;
}

template <class F>
void visit_lane(DType lane, F&& f) {
    switch (lane) {
        case DType::f64:
            return f.template operator()<double>();
        case DType::i64:
            return f.template operator()<std::int64_t>();
        case DType::i32:
            return f.template operator()<std::int32_t>();
        case DType::u8:
            return f.template operator()<std::uint8_t>();
        default:
            assert(lane == DType::f32);
            return f.template operator()<float>();
    }
}

struct alignas(64) Buffer {
    double bytes[kBlock];
};

template <int kInputs>
void run(Span span, const void* formula, const SpanInput* in, const SpanOutput& out) {
    std::array<ConstView, kInputs + 1> views;
    views[0] = out.view;
    for (int k = 0; k < kInputs; ++k) views[k + 1] = in[k].view;
    const Walk<kInputs + 1> walk(views);
    const std::int64_t width = walk.width();
    if (walk.rows() == 0 || width == 0) return;

    bool all_direct = direct(out.view.dtype, out.lane, walk.stride(0));
    for (int k = 0; k < kInputs; ++k)
        all_direct &= direct(in[k].view.dtype, in[k].lane, walk.stride(k + 1));
    const std::int64_t block = all_direct ? kTask : kBlock;

    const auto run_range = [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
        const auto offsets = walk.offsets(row);
        Buffer buffers[kInputs + 1];
        const void* lanes[kInputs == 0 ? 1 : kInputs];
        for (std::int64_t i = begin; i < end; i += block) {
            const std::int64_t n = std::min(block, end - i);
            for (int k = 0; k < kInputs; ++k) {
                const ConstView& v = in[k].view;
                const DType dtype = stored(v.dtype, in[k].lane);
                const std::int64_t stride = walk.stride(k + 1);
                // A repeated element fills the buffer only once.
                if (stride == 0 && i > begin) continue;
                const void* from = at(v.data, dtype, offsets[k + 1] + i * stride);
                if (all_direct) {
                    lanes[k] = from;
                    continue;
                }
                visit_lane(in[k].lane, [&]<class Lane>() {
                    lanes[k] = load_lanes(from, dtype, stride, n,
                                          reinterpret_cast<Lane*>(buffers[k + 1].bytes));
                });
            }
            const DType dtype = stored(out.view.dtype, out.lane);
            void* to = at(out.view.data, dtype, offsets[0] + i * walk.stride(0));
            if (direct(out.view.dtype, out.lane, walk.stride(0))) {
                span(formula, lanes, to, n);
                continue;
            }
            span(formula, lanes, buffers[0].bytes, n);
            visit_lane(out.lane, [&]<class Lane>() {
                store_lanes(reinterpret_cast<const Lane*>(buffers[0].bytes), to, dtype,
                            walk.stride(0), n);
            });
        }
    };

    if (width >= kTask) {
        const std::int64_t parts = (width + kTask - 1) / kTask;
        parallel(walk.rows() * parts, [&](std::int64_t task) {
            const std::int64_t begin = task % parts * kTask;
            run_range(task / parts, begin, std::min(width, begin + kTask));
        });
        return;
    }
    parallel_ranges(walk.rows(), kTask / width, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) run_range(row, 0, width);
    });
}

}  // namespace

void run_spans(Cpu&, Span span, const void* formula, const SpanInput* in, int inputs,
               const SpanOutput& out) {
    if (inputs == 0) return run<0>(span, formula, in, out);
    if (inputs == 1) return run<1>(span, formula, in, out);
    if (inputs == 2) return run<2>(span, formula, in, out);
    assert(inputs == 3);
    run<3>(span, formula, in, out);
}

}  // namespace axle::kernels
