// The source of a correlation in scratch memory: converted to T, with zeros for the padding, and
// with every row divided by the phase of the stride, so that adjacent pixels are contiguous for
// every tap.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/conv/conv.h"

namespace axle::kernels {

template <class T>
class StagedSource {
  public:
    // Chooses the layout. For each phase of the stride, a staged row contains the elements of that
    // phase that pixels read. The correlation must outlive this object.
    StagedSource(Scratch& scratch, const Correlation& p) : p_(p) {
        phase_width_ = p.w.out + p.w.span() / p.w.step;
        row_step_ = phase_width_ * p.w.step;
        tap_ = scratch.take<std::int64_t>(p.h.count * p.w.count);
        uses_phase_ = scratch.take<bool>(p.w.step);
        uses_row_ = scratch.take<bool>(p.h.step);
        std::fill(uses_phase_, uses_phase_ + p.w.step, false);
        std::fill(uses_row_, uses_row_ + p.h.step, false);
        for (std::int64_t i = 0; i < p.h.count; ++i) {
            const std::int64_t row = p.h.offset[i] - p.h.low;
            uses_row_[row % p.h.step] = true;
            for (std::int64_t j = 0; j < p.w.count; ++j) {
                const std::int64_t column = p.w.offset[j] - p.w.low;
                uses_phase_[column % p.w.step] = true;
                tap_[i * p.w.count + j] =
                    row * row_step_ + column % p.w.step * phase_width_ + column / p.w.step;
            }
        }
    }

    // The offset of each tap from the position of a pixel, which is
    //     row * row_step() * (stride along h) + column.
    const std::int64_t* taps() const { return tap_; }
    std::int64_t row_step() const { return row_step_; }
    // Returns the number of staged rows that `out_rows` adjacent rows of the output read.
    std::int64_t rows_for(std::int64_t out_rows) const {
        return (out_rows - 1) * p_.h.step + p_.h.span() + 1;
    }

    // Copies channels [channel, channel + channels) of a group of an image, for the rows of the
    // output that begin at out_row, to scratch memory as [channel][row][phase][pixel]. Returns the
    // end of what was written.
    T* stage(std::int64_t image, std::int64_t group, std::int64_t channel, std::int64_t channels,
             std::int64_t out_row, std::int64_t rows, T* to) const {
        const ConstView& x = p_.source;
        const std::int64_t first = out_row * p_.h.step + p_.h.low;
        const std::int64_t begin = group * p_.channels + channel;
        for (std::int64_t c = begin; c < begin + channels; ++c) {
            const std::int64_t start = image * x.stride[0] + c * x.stride[1];
            for (std::int64_t r = 0; r < rows; ++r, to += row_step_)
                if (uses_row_[r % p_.h.step]) stage_row(start, first + r, to);
        }
        return to;
    }

  private:
    void stage_row(std::int64_t start, std::int64_t row, T* to) const {
        const ConstView& x = p_.source;
        if (row < 0 || row >= p_.h.source) {
            std::fill(to, to + row_step_, T(0));
            return;
        }
        start += row * x.stride[2];
        for (std::int64_t f = 0; f < p_.w.step; ++f, to += phase_width_) {
            if (!uses_phase_[f]) continue;
            // Element v of a phase is read from column v * step + low of the source.
            const std::int64_t low = f + p_.w.low;
            const std::int64_t begin =
                std::min(phase_width_, low >= 0 ? 0 : divide_up(-low, p_.w.step));
            const std::int64_t end =
                std::clamp(divide_up(p_.w.source - low, p_.w.step), begin, phase_width_);
            std::fill(to, to + begin, T(0));
            std::fill(to + end, to + phase_width_, T(0));
            if (begin == end) continue;
            const std::int64_t from = start + (low + begin * p_.w.step) * x.stride[3];
            if (p_.w.step == 1 && is_lanes<T>(x.dtype, x.stride[3], 2)) {
                std::copy_n(x.as<T>() + from, end - begin, to + begin);
                continue;
            }
            const T* line = load_lanes<T>(at(x.data, x.dtype, from), x.dtype,
                                          p_.w.step * x.stride[3], end - begin, to + begin);
            if (line != to + begin) std::copy(line, line + (end - begin), to + begin);
        }
    }

    const Correlation& p_;
    std::int64_t phase_width_ = 0, row_step_ = 0;
    std::int64_t* tap_ = nullptr;
    bool* uses_phase_ = nullptr;
    bool* uses_row_ = nullptr;
};

}  // namespace axle::kernels
