// Finds the library of the Gloo backend.
#pragma once

#include <string>

namespace axle::dist {

// Returns the path of libaxle_gloo.so, or "not found: " and the paths that were searched.
std::string find_gloo();

}  // namespace axle::dist
