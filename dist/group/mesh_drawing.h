// Draws the groups of a device mesh as an SVG image.
#pragma once

#include <string>
#include <vector>

#include "dist/group/mesh.h"

namespace axle::dist {

// Returns an SVG image with one panel for each dimension. A panel shows all ranks in row-major
// order; a row has the ranks along the last dimension. The ranks of a group along the panel's
// dimension have the same color; the colors repeat after 8 groups. Throws ValueError if a size is
// less than 1, or if there are more than 256 ranks. Throws ValueError if a name is empty or
// repeated, or has characters other than letters, digits and underscores.
std::string draw_mesh(const std::vector<DeviceMesh::Dimension>& dimensions);

}  // namespace axle::dist
