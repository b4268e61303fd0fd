// A header of the host project with the same name as one of Axle: each side must find its own.
#pragma once

namespace host {

inline constexpr int kDimensions = 2;

}  // namespace host
