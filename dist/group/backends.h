// Queries about the communication backends.
#pragma once

#include <string>

namespace axle::dist {

// Returns the path of Gloo's module (libaxle_gloo.so), or "not found: " and the places that were
// searched.
std::string find_gloo();

}  // namespace axle::dist
