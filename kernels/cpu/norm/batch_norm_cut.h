// The split of batch norm into tasks, which depends on the shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/norm/channel_spans.h"
#include "kernels/view.h"

namespace axle::kernels {

inline constexpr std::int64_t kSmallPlane = 64;  // planes of at least this size are spans
inline constexpr std::int64_t kRow = 512;        // elements in a row of small planes
inline constexpr std::int64_t kTile = 32;        // rows whose statistics are computed together
// The maximum size of a group that one task processes, in elements. kPrivate elements stay in L2.
// kShared elements stay in one task's part of L3; this size is used if there are at least
// kManyGroups groups, which keep many threads busy.
inline constexpr std::int64_t kPrivate = std::int64_t{1} << 17;
inline constexpr std::int64_t kShared = std::int64_t{1} << 19;
inline constexpr std::int64_t kManyGroups = 16;

// A block of channels [channel, channel + channels) in units [first, last). A unit is a sample or a
// piece of its planes.
struct ChannelBlock {
    std::int64_t channel, channels, part, first, last;
};

struct BatchNormCut {
    std::int64_t batch, channels, plane;  // N, C and S
    bool rows;                            // whether small planes are processed as rows
    std::int64_t width;                   // channels per group
    std::int64_t pieces;                  // pieces per plane
    std::int64_t height, parts;           // units per part, parts per group
    std::int64_t grain;                   // number of tasks assigned together

    BatchNormCut(const ConstView& x, bool vectors) : batch(x.shape[0]), channels(x.shape[1]) {
        plane = x.numel() / (batch * channels);
        rows = vectors && plane < kSmallPlane;
        pieces = divide_up(plane, kPiece);
        width = std::clamp<std::int64_t>((rows ? kRow : kPiece) / plane, 1, channels);
        const std::int64_t group = batch * plane * width, units = batch * pieces;
        const std::int64_t unit = width * std::min(plane, kPiece);
        const bool cached = group <= (groups() < kManyGroups ? kPrivate : kShared);
        height = cached ? units : divide_up(2 * kGrain, unit);
        parts = divide_up(units, height);
        grain = parts > 1 ? 1 : divide_up(kGrain, group);
    }
    std::int64_t groups() const { return divide_up(channels, width); }
    std::int64_t tasks() const { return groups() * parts; }
    std::int64_t slots() const { return slots_for(tasks(), grain); }
    ChannelBlock block(std::int64_t task) const {
        const std::int64_t channel = task / parts * width, part = task % parts;
        return {channel, std::min(width, channels - channel), part, part * height,
                std::min(batch * pieces, (part + 1) * height)};
    }
    // length() returns the number of elements that each channel has in a unit. offset() returns the
    // offset of the first of these elements in x.
    std::int64_t length(std::int64_t unit) const {
        return std::min(kPiece, plane - unit % pieces * kPiece);
    }
    std::int64_t offset(std::int64_t unit, std::int64_t channel) const {
        return (unit / pieces * channels + channel) * plane + unit % pieces * kPiece;
    }
    // span() returns the length of a block's longest span. spans() returns the number of buffers of
    // this length that the block needs.
    std::int64_t span() const { return width * std::min(plane, kPiece); }
    std::int64_t spans() const { return rows ? kTile : 3; }
};

}  // namespace axle::kernels
