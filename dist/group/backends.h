// Finds libaxle_gloo.so, the library of the Gloo backend.
#pragma once

#include <string>

namespace axle::dist {

// Opens libaxle_gloo.so and returns its path, which is the bare file name if the system's loader
// found the library. If the library cannot be opened, returns "not found: " and the reason.
std::string find_gloo();

// The environment variable in which `axle launch` passes installed_gloo_folder() to the processes
// that it starts. The processes search this folder after all other folders.
inline constexpr const char* kLauncherLibraries = "AXLE_LAUNCHER_LIBRARIES";

// Returns the folder of the libaxle_gloo.so that is installed together with this program: the
// program's folder, or the lib folder (on some systems lib64, for example) next to this folder.
// Returns "" if none of them contains the library.
std::string installed_gloo_folder();

// Excludes the program's folder and the library folders next to it from the search. Must be called
// before the first process group is created.
void ignore_program_folder();

}  // namespace axle::dist
