// Ops that read an image or a volume at given positions. interpolate() in core/functional.h resizes
// on regular grids. core/ops.h does not include this header, but its rules apply to these ops, too.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle {

enum class GridMode : std::uint8_t { bilinear, nearest, bicubic };
enum class GridPadding : std::uint8_t { zeros, border, reflection };
struct GridSampleOptions {
    // bilinear means trilinear for volumes, and bicubic means tricubic.
    GridMode mode = GridMode::bilinear;
    // The elements outside of x: zeros, the nearest element, or the mirrored elements.
    GridPadding padding_mode = GridPadding::zeros;
    // Whether -1 and 1 are the centers of the outer elements, not their outer borders.
    bool align_corners = false;
};

// --- values at positions, and grids of positions (sampling/grid_sample.cpp)
// Returns the values of x at the positions in grid. For images x [N, C, H, W] and grid [N, Ho, Wo,
// 2], the result is [N, C, Ho, Wo]. For volumes x [N, C, D, H, W] and grid [N, Do, Ho, Wo, 3], it
// is [N, C, Do, Ho, Wo]. A position is (x, y) or (x, y, z), from -1 to 1 along the width, the
// height and the depth. x and grid have one floating dtype (DTypeError); under autocast, their
// floating dtypes can differ. Throws ShapeError if other dimensions of x than N and C are empty.
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});
// Returns the grid of the affine maps theta for a result of the given size. For [N, C, H, W], theta
// is [N, 2, 3] and the grid is [N, H, W, 2]. For [N, C, D, H, W], theta is [N, 3, 4] and the grid
// is [N, D, H, W, 3]. Throws ShapeError unless all numbers of size are positive.
Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners = false);

}  // namespace axle
