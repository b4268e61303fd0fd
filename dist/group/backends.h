// What moves the data of process groups, and where it is.
#pragma once

#include <string>

namespace axle::inline v0::dist {

// The file of Gloo's module, or "not found: " and where it was looked for.
std::string find_gloo();

}  // namespace axle::inline v0::dist
