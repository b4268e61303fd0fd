// The blocks of operands that a task of a matrix product reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/walk.h"

namespace axle::kernels {

// A panel of a packed or unpacked operand.
template <class Unit>
struct Panel {
    const Unit* data;
    std::int64_t step;
};

template <class Unit>
inline constexpr bool kIsAmx = std::is_same_v<Unit, AmxPair>;

// An operand that is packed once for all tasks, in blocks along the depth. The panels of a block
// are contiguous.
template <class Unit>
class SharedOperand {
  public:
    SharedOperand() = default;
    // The operand has `extent` lines of k elements, and a block has `depth` elements of each line.
    SharedOperand(const Lines& lines, std::int64_t extent, std::int64_t k, std::int64_t depth,
                  std::int64_t width, std::int64_t quantum)
        : lines_(lines),
          extent_(extent),
          k_(k),
          depth_(depth),
          width_(width),
          quantum_(quantum),
          panels_(divide_up(extent, width)) {}

    // Returns the number of units that are packed.
    std::int64_t size() const { return round_up(extent_, quantum_) * units_of<Unit>(k_); }
    void set_memory(Unit* memory) { memory_ = memory; }

    // Tasks pack one panel each, in any order.
    std::int64_t tasks() const { return panels_ == 0 ? 0 : panels_ * divide_up(k_, depth_); }
    void pack(std::int64_t task, Unit* buffer) const {
        const std::int64_t p = task / panels_ * depth_, i = task % panels_ * width_;
        const void* const data =
            at(lines_.data, lines_.dtype, p * lines_.depth_stride + i * lines_.stride);
        pack_panels({data, lines_.dtype, lines_.stride, lines_.depth_stride},
                    std::min(width_, extent_ - i), std::min(depth_, k_ - p), width_, quantum_,
                    panel(p, i), buffer);
    }
    // Returns the panel that begins with line i, of the block that begins at depth p.
    Unit* panel(std::int64_t p, std::int64_t i) const {
        return memory_ + round_up(extent_, quantum_) * (p / UnitTraits<Unit>::kTerms) +
               i * units_of<Unit>(std::min(depth_, k_ - p));
    }

  private:
    Lines lines_;
    std::int64_t extent_ = 0, k_ = 0, depth_ = 1, width_ = 1, quantum_ = 1, panels_ = 0;
    Unit* memory_ = nullptr;
};

// A block of one operand, either packed or read from the operand's own memory.
template <class Unit>
class Block {
  public:
    Block(Unit* scratch, Unit* buffer) : scratch_(scratch), buffer_(buffer) {}

    void set(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
             std::int64_t quantum, bool in_place) {
        set_packed(scratch_, extent, depth, width, quantum);
        lines_ = lines;
        in_place_ = in_place && is_packed(lines);
        const std::int64_t packed_from = in_place_ ? extent / width * width : 0;
        Lines packed = lines;
        packed.data = at(lines.data, lines.dtype, packed_from * lines.stride);
        if (packed_from < extent)
            pack_panels(packed, extent - packed_from, depth, width, quantum,
                        scratch_ + packed_from * units_, buffer_);
    }
    // Uses packed panels.
    void set_packed(const Unit* panels, std::int64_t extent, std::int64_t depth, std::int64_t width,
                    std::int64_t quantum) {
        packed_ = panels, extent_ = extent, units_ = units_of<Unit>(depth), width_ = width,
        quantum_ = quantum;
        in_place_ = false;
    }
    // Returns whether the layout of lines in memory is that of panels, and tiles can read them
    // fast. If the distance between depths is a multiple of 2 KiB, the elements of a panel compete
    // for few sets of the caches.
    static bool is_packed(const Lines& lines) {
        constexpr std::int64_t kAliased = 2048 / sizeof(Unit);
        if constexpr (UnitTraits<Unit>::kTerms == 1)
            return is_lanes<Unit>(lines.dtype, lines.stride, 2) &&
                   lines.depth_stride % kAliased != 0;
        return false;
    }
    // Returns the panel of the lines that begin with line i, a multiple of the width.
    Panel<Unit> panel(std::int64_t i) const {
        if (in_place_ && i + width_ <= extent_)
            return {static_cast<const Unit*>(lines_.data) + i, lines_.depth_stride};
        return {packed_ + i * units_, std::min(width_, round_up(extent_ - i, quantum_))};
    }

  private:
    Unit* scratch_;
    Unit* buffer_;
    const Unit* packed_ = nullptr;
    Lines lines_;
    std::int64_t extent_ = 0, units_ = 0, width_ = 1, quantum_ = 1;
    bool in_place_ = false;
};

// A block of a for AMX: rows, packed or in the operand's own memory if their cache lines are
// aligned.
class Rows {
  public:
    Rows(AmxPair* scratch, AmxPair*) : scratch_(scratch) {}

    void set(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
             std::int64_t, bool) {
        constexpr std::int64_t kTerms = 32;  // in a cache line
        lines_ = lines, extent_ = extent, pairs_ = units_of<AmxPair>(depth), width_ = width;
        in_place_ = lines.depth_stride == 1 && lines.stride % kTerms == 0 && depth % kTerms == 0 &&
                    reinterpret_cast<std::uintptr_t>(lines.data) % 64 == 0;
        const std::int64_t packed_from = in_place_ ? extent / width * width : 0;
        Lines packed = lines;
        packed.data = at(lines.data, lines.dtype, packed_from * lines.stride);
        if (packed_from < extent)
            pack_rows(packed, extent - packed_from, depth, scratch_ + packed_from * pairs_);
    }
    // Returns the rows that begin with row i, a multiple of the width.
    Panel<AmxPair> panel(std::int64_t i) const {
        if (in_place_ && i + width_ <= extent_)
            return {static_cast<const AmxPair*>(at(lines_.data, lines_.dtype, i * lines_.stride)),
                    lines_.stride / 2};
        return {scratch_ + i * pairs_, pairs_};
    }

  private:
    AmxPair* scratch_;
    Lines lines_;
    std::int64_t extent_ = 0, pairs_ = 0, width_ = 1;
    bool in_place_ = false;
};

}  // namespace axle::kernels
