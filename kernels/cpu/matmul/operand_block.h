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

// A block of one operand, either packed or read from the operand's own memory.
template <class Unit>
class Block {
  public:
    Block(Unit* scratch, Unit* buffer) : scratch_(scratch), buffer_(buffer) {}

    void set(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
             std::int64_t quantum, bool in_place) {
        lines_ = lines, extent_ = extent, units_ = units_of<Unit>(depth), width_ = width,
        quantum_ = quantum;
        in_place_ = in_place && is_packed(lines);
        const std::int64_t packed_from = in_place_ ? extent / width * width : 0;
        Lines packed = lines;
        packed.data = at(lines.data, lines.dtype, packed_from * lines.stride);
        if (packed_from < extent)
            pack_panels(packed, extent - packed_from, depth, width, quantum,
                        scratch_ + packed_from * units_, buffer_);
    }
    // Returns the panel of the lines that begin with line i, a multiple of the width.
    Panel<Unit> panel(std::int64_t i) const {
        if (in_place_ && i + width_ <= extent_)
            return {static_cast<const Unit*>(lines_.data) + i, lines_.depth_stride};
        return {scratch_ + i * units_, std::min(width_, round_up(extent_ - i, quantum_))};
    }

  private:
    static bool is_packed(const Lines& lines) {
        if constexpr (UnitTraits<Unit>::kTerms == 1)
            return is_lanes<Unit>(lines.dtype, lines.stride, 2);
        return false;
    }

    Unit* scratch_;
    Unit* buffer_;
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
