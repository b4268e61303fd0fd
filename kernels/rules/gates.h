// Private to kernels: splits the operands of recurrent steps into gates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/view.h"
#include "kernels/walk.h"

namespace axle::kernels {

// Splits 2-d views, whose widths are multiples of `hidden`, into views of width `hidden`, which are
// kCount in total.
template <std::size_t kCount, class AnyView>
std::array<AnyView, kCount> split_gates(std::initializer_list<AnyView> views, std::int64_t hidden) {
    std::array<AnyView, kCount> gates;
    std::size_t count = 0;
    for (const AnyView& view : views)
        for (std::int64_t first = 0; first < view.shape[1]; first += hidden) {
            AnyView& gate = gates[count++] = view;
            gate.data = at(view.data, view.dtype, first * view.stride[1]);
            gate.shape[1] = hidden;
        }
    return gates;
}

}  // namespace axle::kernels
