#include "kernels/cuda/library.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <glob.h>

#include "kernels/error.h"
#include "kernels/exec.h"
#include "kernels/shared_library.h"

namespace axle::kernels {
namespace {

std::string environment(const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
}

// Returns the paths that match a pattern in descending alphabetical order, in which later versions
// of Python or CUDA are usually first.
std::vector<std::string> matching(const std::string& pattern) {
    std::vector<std::string> paths;
    glob_t found = {};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    std::reverse(paths.begin(), paths.end());
    return paths;
}

std::vector<std::string> usual_patterns() {
    std::vector<std::string> patterns;
    for (const char* root : {"VIRTUAL_ENV", "CONDA_PREFIX"})
        if (const std::string folder = environment(root); !folder.empty())
            patterns.push_back(folder + "/lib/python3*/site-packages/nvidia/*/lib");
    if (const std::string home = environment("HOME"); !home.empty())
        patterns.push_back(home + "/.local/lib/python3*/site-packages/nvidia/*/lib");
    for (const char* pattern : {"/usr/local/lib/python3*/*-packages/nvidia/*/lib",
                                "/usr/lib/python3*/*-packages/nvidia/*/lib",
                                "/usr/local/cuda*/lib64", "/usr/local/cuda*/lib"})
        patterns.push_back(pattern);
    return patterns;
}

std::string join(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return text;
}

// The warnings that take_library_warning() has not returned yet. This object is never destroyed.
struct PendingWarnings {
    std::mutex mutex;
    std::string text;
};
PendingWarnings& pending_warnings() {
    static auto* const instance = new PendingWarnings;
    return *instance;
}

}  // namespace

std::string take_library_warning() {
    const std::lock_guard lock(pending_warnings().mutex);
    has_library_warning = false;
    return std::exchange(pending_warnings().text, {});
}

void add_library_warning(const std::string& text) {
    const std::lock_guard lock(pending_warnings().mutex);
    std::string& all = pending_warnings().text;
    all += (all.empty() ? "" : "; ") + text;
    has_library_warning = true;
}

Library::Library(const char* title, const char* stem, int major)
    : title_(title), name_(str(stem, ".so.", major)) {
    search(stem);
    if (!found()) add_library_warning(error_);
}

void Library::search(const char* stem) {
    const std::vector<std::string> listed = library_folders(), usual = usual_patterns();
    std::vector<std::string> folders = listed;
    for (const std::string& folder : listed)
        // A folder of AXLE_LIBRARY_PATH ends the search if it contains the library, or a file of
        // this name that cannot be opened.
        if (open(folder + "/" + name_) || !error_.empty()) return;
    if (open(name_)) return;
    for (const std::string& pattern : usual)
        for (const std::string& folder : matching(pattern)) {
            if (open(folder + "/" + name_)) return;
            folders.push_back(folder);
        }
    if (!error_.empty()) return;  // the file exists but cannot be opened

    for (const std::string& folder : folders)
        for (const std::string& other : matching(folder + "/" + stem + ".so.*")) {
            error_ = str(title_, " has the wrong version: found ", other,
                         ", this build of Axle needs ", name_);
            return;
        }
    std::vector<std::string> places;
    if (!listed.empty()) places.push_back("AXLE_LIBRARY_PATH (" + join(listed) + ")");
    places.push_back("the loader's path");
    places.insert(places.end(), usual.begin(), usual.end());
    error_ = str(title_, " was not found: ", name_, ": looked in ", join(places),
                 "; set AXLE_LIBRARY_PATH to its folder");
}

bool Library::open(const std::string& file) {
    const OpenedLibrary opened = open_library(file);
    handle_ = opened.handle;
    if (found()) {
        path_ = file;
        error_.clear();
        return true;
    }
    if (!opened.error.empty() && error_.empty())
        error_ = str(title_, " can't be opened: ", opened.error);
    return false;
}

void* Library::symbol(const char* name) const {
    require();
    void* const found = dlsym(handle_, name);
    if (found == nullptr)
        throw CudaError(str(current_op, ": ", title_, " has no function ", name,
                            ": it was loaded from ", path_));
    return found;
}

void Library::require() const {
    if (!found()) throw DeviceError(str(current_op, ": ", error_));
}

}  // namespace axle::kernels
