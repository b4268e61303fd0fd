// A header of the project's own with the name of one of Axle's: each side must find its own.
#pragma once

namespace host {

inline constexpr int kDimensions = 2;

}  // namespace host
