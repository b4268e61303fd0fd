// Private to kernels: maps the number of an element to its offset in each of several strided
// operands.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/half.h"
#include "kernels/walk.h"

namespace axle::kernels {

// Division of numbers below 2^31 by a divisor that is known only at run time. It is implemented as
// a multiplication by the round-up method of Granlund and Montgomery, "Division by invariant
// integers using multiplication" (PLDI 1994).
struct Divider {
    std::uint32_t divisor = 1, factor = 1, shift = 0;

    Divider() = default;
    explicit Divider(std::int64_t d) : divisor(static_cast<std::uint32_t>(d)) {
        while ((std::uint64_t{1} << shift) < divisor) ++shift;
        factor = static_cast<std::uint32_t>(
            (std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - divisor) / divisor + 1);
    }
    AXLE_HOST_DEVICE std::uint32_t quotient(std::uint32_t n) const {
        const auto high = static_cast<std::uint32_t>((std::uint64_t{n} * factor) >> 32);
        return (high + n) >> shift;
    }
};

// A Walk of fewer than 2^31 elements, passed to kernels by value. Elements have 32-bit numbers, in
// row-major order of the walk's dimensions. Offsets are 64-bit.
template <int kOperands>
struct DeviceWalk {
    int ndim = 1;
    std::uint32_t numel = 0;
    std::uint32_t size[kMaxDims] = {};
    Divider by[kMaxDims] = {};
    std::int64_t base[kOperands] = {};
    std::int64_t stride[kOperands][kMaxDims] = {};

    // The offsets from each operand's start, in elements.
    struct Place {
        std::int64_t at[kOperands];
    };
    AXLE_HOST_DEVICE Place place(std::uint32_t i) const {
        Place p;
        for (int k = 0; k < kOperands; ++k) p.at[k] = base[k];
        for (int d = ndim - 1; d > 0; --d) {
            const std::uint32_t rest = by[d].quotient(i);
            const std::uint32_t here = i - rest * size[d];
            for (int k = 0; k < kOperands; ++k) p.at[k] += here * stride[k][d];
            i = rest;
        }
        for (int k = 0; k < kOperands; ++k) p.at[k] += i * stride[k][0];
        return p;
    }
};

namespace slabs {

// A reference to a function that is called for parts of a walk. Its type does not depend on the
// type of the function, so that cut() is compiled once for each number of operands.
template <int kOperands>
struct SlabFunction {
    void* function;
    void (*call)(void* function, const DeviceWalk<kOperands>& slab);
};

// Calls f for parts of a walk. Splits the dimensions, outermost first, until each part has at most
// `most` elements.
template <int kOperands>
void cut(const Walk<kOperands>& walk, const DeviceWalk<kOperands>& part, int d, std::int64_t most,
         SlabFunction<kOperands> f) {
    std::int64_t inner = 1;  // elements per index of dimension d
    for (int e = d + 1; e < walk.ndim(); ++e) inner *= walk.size(e);
    const std::int64_t together = inner <= most ? most / inner : 1;
    for (std::int64_t first = 0; first < walk.size(d); first += together) {
        const std::int64_t count = std::min(together, walk.size(d) - first);
        DeviceWalk<kOperands> slab = part;
        for (int k = 0; k < kOperands; ++k) slab.base[k] += first * walk.stride(k, d);
        if (inner > most) {
            cut(walk, slab, d + 1, most, f);
            continue;
        }
        slab.ndim = walk.ndim() - d;
        slab.numel = static_cast<std::uint32_t>(count * inner);
        for (int e = d; e < walk.ndim(); ++e) {
            const std::int64_t size = e == d ? count : walk.size(e);
            slab.size[e - d] = static_cast<std::uint32_t>(size);
            slab.by[e - d] = Divider(size);
            for (int k = 0; k < kOperands; ++k) slab.stride[k][e - d] = walk.stride(k, e);
        }
        f.call(f.function, slab);
    }
}

}  // namespace slabs

// Calls f(DeviceWalk) for consecutive parts of the walk, with at most `most` elements each. A walk
// with at most this number of elements has a single part, and an empty walk has no part.
template <int kOperands, class F>
void for_each_slab(const Walk<kOperands>& walk, F&& f,
                   std::int64_t most = std::numeric_limits<std::int32_t>::max()) {
    if (walk.rows() == 0) return;
    const auto call = [](void* function, const DeviceWalk<kOperands>& slab) {
        (*static_cast<std::remove_reference_t<F>*>(function))(slab);
    };
    slabs::cut<kOperands>(walk, {}, 0, most,
                          {const_cast<void*>(static_cast<const void*>(&f)), call});
}

// Returns whether a walk can process packs of n elements. Every operand must have adjacent elements
// in packs that start at multiples of n, or an innermost stride of 0. Only a one-dimensional walk
// can have a remainder after the last pack.
template <int kOperands>
bool steps_by_packs(const Walk<kOperands>& walk, int n) {
    const int last = walk.ndim() - 1;
    if (walk.size(last) < n || (last > 0 && walk.size(last) % n != 0)) return false;
    for (int k = 0; k < kOperands; ++k) {
        if (walk.stride(k, last) == 0) continue;
        if (walk.stride(k, last) != 1) return false;
        for (int d = 0; d < last; ++d)
            if (walk.stride(k, d) % n != 0) return false;
    }
    return true;
}

// Returns the same walk with n elements per step.
template <int kOperands>
DeviceWalk<kOperands> in_packs(DeviceWalk<kOperands> walk, int n) {
    const int last = walk.ndim - 1;
    walk.numel /= static_cast<std::uint32_t>(n);
    walk.size[last] /= static_cast<std::uint32_t>(n);
    walk.by[last] = Divider(std::max(walk.size[last], 1u));
    for (int k = 0; k < kOperands; ++k) walk.stride[k][last] *= n;
    return walk;
}

// The value of the argument `most` of for_each_slab if slabs are walked in packs. It is a multiple
// of all pack sizes, so that only the last slab can have a remainder.
inline constexpr std::int64_t kMaxInPacks = std::int64_t{1} << 30;

}  // namespace axle::kernels
