// The weight of a correlation, packed into panels of tile_rows rows. Every block of depth has a
// line of rows per tap of each of its channels; the first block begins with a line for the bias, if
// there is one. Lines have an even number of elements; the last one is zero if the number of rows
// is odd.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/conv/conv.h"

namespace axle::kernels {

template <class T>
class PackedWeight {
  public:
    // Packs the weight into memory of `scratch`, with a block of depth per `block` channels. The
    // correlation must outlive this object.
    PackedWeight(Cpu& on, Scratch& scratch, const Correlation& p, const T* weight,
                 std::int64_t block, std::int64_t tile_rows)
        : p_(p),
          weight_(weight),
          taps_(p.h.count * p.w.count),
          block_(block),
          blocks_(divide_up(p.channels, block)),
          tile_rows_(tile_rows),
          has_bias_(p.bias.data != nullptr),
          to_(scratch.take<T>(p.groups * round_up(p.m, 2) * depth())) {
        pack(on);
    }

    // The number of channels, and of lines, of a block of depth.
    std::int64_t channels_of(std::int64_t block) const {
        return std::min(block_, p_.channels - block * block_);
    }
    std::int64_t depth_of(std::int64_t block) const {
        return channels_of(block) * taps_ + (block == 0 && has_bias_ ? 1 : 0);
    }
    // Returns the panel that begins with the row `row` of a group, a multiple of tile_rows.
    const T* panel(std::int64_t group, std::int64_t block, std::int64_t row) const {
        return block_start(group, block) + row * depth_of(block);
    }

  private:
    std::int64_t depth() const { return p_.channels * taps_ + (has_bias_ ? 1 : 0); }

    // Returns the start of a block of depth of a group. The panels of a block are contiguous.
    T* block_start(std::int64_t group, std::int64_t block) const {
        const std::int64_t before = block * block_ * taps_ + (block > 0 && has_bias_ ? 1 : 0);
        return to_ + round_up(p_.m, 2) * (group * depth() + before);
    }

    void pack(Cpu& on) {
        const std::int64_t panels = divide_up(p_.m, tile_rows_);
        const std::int64_t tasks = p_.groups * blocks_ * panels;
        const std::int64_t most = block_ * taps_;
        const std::int64_t group =
            std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, tile_rows_ * most));
        const std::int64_t slots = slots_for(tasks, group);
        const std::int64_t size =
            round_up(std::max(pack_buffer(tile_rows_, most), p_.kernel_size), 16);
        Scratch scratch(on);
        T* const buffers = scratch.take<T>(slots * size);
        parallel_slots(tasks, group, slots, [&](std::int64_t task, std::int64_t slot) {
            const std::int64_t row = task % panels * tile_rows_;
            const std::int64_t block = task / panels % blocks_;
            pack_panel(task / panels / blocks_, block, row, buffers + slot * size);
        });
    }

    void pack_panel(std::int64_t group, std::int64_t block, std::int64_t row, T* buffer) const {
        const std::int64_t rows = std::min(tile_rows_, p_.m - row), step = round_up(rows, 2);
        T* to = block_start(group, block) + row * depth_of(block);
        if (block == 0 && has_bias_) {
            const std::int64_t at_bias = (group * p_.m + row) * p_.bias.stride[0];
            const T* bias = load_lanes<T>(at(p_.bias.data, p_.bias.dtype, at_bias), p_.bias.dtype,
                                          p_.bias.stride[0], rows, buffer);
            std::copy(bias, bias + rows, to);
            std::fill(to + rows, to + step, T(0));
            to += step;
        }
        const T* from =
            weight_ + group * p_.group_step + row * p_.row_step + block * block_ * p_.channel_step;
        const bool all = p_.h.all && p_.w.all;
        const bool one = taps_ == 1;
        if (one) from += p_.h.index[0] * p_.kernel_w + p_.w.index[0];
        if (one || (all && p_.channel_step == p_.kernel_size)) {
            const Lines lines = {from, dtype_of<T>, p_.row_step, one ? p_.channel_step : 1};
            pack_panels(lines, rows, channels_of(block) * taps_, tile_rows_, 2, to, buffer);
            return;
        }
        for (std::int64_t k = 0; k < channels_of(block); ++k, from += p_.channel_step)
            pack_taps(from, rows, step, all, to + k * taps_ * step, buffer);
    }
    // Packs all taps of one channel for the rows of a panel.
    void pack_taps(const T* from, std::int64_t rows, std::int64_t step, bool all, T* to,
                   T* buffer) const {
        const T* lines[kMaxTileRows];
        if (rows < step) std::fill_n(buffer, p_.kernel_size, T(0));
        for (std::int64_t r = 0; r < step; ++r)
            lines[r] = r < rows ? from + r * p_.row_step : buffer;
        if (all) {
            for (std::int64_t i = 0; i < step; i += kMaxInterleaved)
                gemm_kernels<T>().interleave(lines + i,
                                             static_cast<int>(std::min(kMaxInterleaved, step - i)),
                                             taps_, to + i, step);
            return;
        }
        for (std::int64_t i = 0; i < p_.h.count; ++i)
            for (std::int64_t j = 0; j < p_.w.count; ++j) {
                const std::int64_t tap = p_.h.index[i] * p_.kernel_w + p_.w.index[j];
                for (std::int64_t r = 0; r < step; ++r) *to++ = lines[r][tap];
            }
    }

    const Correlation& p_;
    const T* weight_;
    std::int64_t taps_;
    std::int64_t block_, blocks_;  // channels per block of depth, and number of blocks
    std::int64_t tile_rows_;
    bool has_bias_;
    T* to_;
};

}  // namespace axle::kernels
