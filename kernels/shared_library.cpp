#include "kernels/shared_library.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <dlfcn.h>

namespace axle::kernels {

std::vector<std::string> library_folders() {
    std::vector<std::string> folders;
    const char* const text = std::getenv("AXLE_LIBRARY_PATH");
    const std::string_view list = text == nullptr ? "" : text;
    for (std::size_t begin = 0; begin < list.size();) {
        const std::size_t end = std::min(list.find(':', begin), list.size());
        if (end > begin) folders.emplace_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return folders;
}

OpenedLibrary open_library(const std::string& file) {
    std::error_code ignored;
    const bool is_path = file.find('/') != std::string::npos;
    if (is_path && !std::filesystem::exists(file, ignored)) return {};
    if (void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, {}};
    const char* const message = dlerror();
    if (!is_path) return {};
    return {nullptr, message == nullptr ? file : message};
}

}  // namespace axle::kernels
