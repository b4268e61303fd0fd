#include "kernels/shared_library.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <dlfcn.h>
#include <link.h>

#include "kernels/error.h"

#ifndef AXLE_LIBRARY_FOLDER
#define AXLE_LIBRARY_FOLDER "lib"
#endif

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

// Returns whether the program has no segment with the path of the dynamic loader (PT_INTERP). The
// first object that dl_iterate_phdr reports is the program.
bool is_static_program() {
    const auto names_loader = [](dl_phdr_info* program, std::size_t, void*) {
        for (int i = 0; i < program->dlpi_phnum; ++i)
            if (program->dlpi_phdr[i].p_type == PT_INTERP) return 2;
        return 1;
    };
    static const bool is_static = dl_iterate_phdr(names_loader, nullptr) == 1;
    return is_static;
}

std::vector<std::string> own_library_folders() {
    namespace fs = std::filesystem;
    std::vector<fs::path> files;
    std::error_code none;
    if (fs::path program = fs::read_symlink("/proc/self/exe", none); !none)
        files.push_back(std::move(program));
    Dl_info object = {};
    // A relative path is ignored: the program may have changed its current folder since it was
    // started.
    if (!is_static_program() &&
        dladdr(reinterpret_cast<const void*>(&own_library_folders), &object) != 0 &&
        fs::path(object.dli_fname).is_absolute())
        files.emplace_back(object.dli_fname);
    std::vector<std::string> folders;
    const auto add = [&](const fs::path& folder) {
        if (std::find(folders.begin(), folders.end(), folder.string()) == folders.end())
            folders.push_back(folder.string());
    };
    for (const fs::path& file : files) {
        const fs::path folder = file.parent_path(), prefix = folder.parent_path();
        add(folder);
        add(prefix / "lib");
        add(prefix / AXLE_LIBRARY_FOLDER);
    }
    return folders;
}

OpenedLibrary open_library(const std::string& file) {
    std::error_code ignored;
    const bool is_path = file.find('/') != std::string::npos;
    if (is_path && !std::filesystem::exists(file, ignored)) return {};
    if (is_static_program())
        return {nullptr, str(file,
                             ": this program is linked with -static, and static programs cannot "
                             "open shared libraries; link it without -static")};
    if (void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, {}};
    const char* const text = dlerror();
    const std::string message = text == nullptr ? file : text;
    // If the loader finds no file of this name, the message begins with the name. Otherwise, the
    // message begins with a path, or with the name of a library that this library needs.
    if (!is_path && message.starts_with(file)) return {};
    return {nullptr, message};
}

}  // namespace axle::kernels
