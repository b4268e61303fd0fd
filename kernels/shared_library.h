// Private to the library: shared libraries that are opened at run time.
#pragma once

#include <string>
#include <vector>

namespace axle::kernels {

// Returns the folders in AXLE_LIBRARY_PATH, which are separated by colons.
std::vector<std::string> library_folders();

struct OpenedLibrary {
    void* handle = nullptr;  // null if the library was not opened
    std::string error;       // why an existing file could not be opened
};

// Opens `file`, a path or a name that the loader searches for, with dlopen(). Both members are
// empty if the path does not exist or the loader does not find the name.
OpenedLibrary open_library(const std::string& file);

}  // namespace axle::kernels
