// Private to the library: shared libraries that are opened at run time.
#pragma once

#include <string>
#include <vector>

namespace axle::kernels {

// Returns the folders in the environment variable AXLE_LIBRARY_PATH, which are separated by colons.
std::vector<std::string> library_folders();

// Returns the folders of the shared libraries that are installed with Axle. These are the folders
// of the program and of the shared library that contains Axle, and the library folders next to
// them.
std::vector<std::string> own_library_folders();

struct OpenedLibrary {
    void* handle = nullptr;  // null if the library was not opened
    std::string error;       // the reason why an existing file could not be opened
};

// Returns whether the program was linked with -static. Such a program has no dynamic loader, and
// glibc's dlopen() can crash in it.
bool is_static_program();

// Opens `file` with dlopen(). `file` is a path, or a name that the loader searches for. If the file
// does not exist, both members of the result are empty. A static program cannot open libraries;
// `error` then contains the reason, unless `file` is a path that does not exist.
OpenedLibrary open_library(const std::string& file);

}  // namespace axle::kernels
