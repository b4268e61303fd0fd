// A header of the host project with the same name as a header of Axle. Each project must include
// its own header.
#pragma once

namespace host {

inline constexpr int kDimensions = 2;

}  // namespace host
