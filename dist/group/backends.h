// Finds libaxle_gloo.so, the library of the Gloo backend.
#pragma once

#include <string>

namespace axle::dist {

// Returns the path of libaxle_gloo.so, or "not found: " and the paths that were searched.
std::string find_gloo();

// The environment variable in which `axle launch` passes installed_gloo_folder() to the processes
// that it starts. They search it after all other folders.
inline constexpr const char* kLauncherLibraries = "AXLE_LAUNCHER_LIBRARIES";

// Returns the folder of the libaxle_gloo.so that is installed together with this program: the
// program's folder, or ../lib next to this folder. Returns "" if no folder contains the library.
std::string installed_gloo_folder();

// Removes the folders of installed_gloo_folder() from the search, so that only other folders are
// searched. Must be called before the first process group is created.
void ignore_program_folder();

}  // namespace axle::dist
