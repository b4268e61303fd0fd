#include "dist/mpi/library.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <dlfcn.h>

#include "core/files/file.h"
#include "kernels/error.h"
#include "kernels/shared_library.h"

namespace axle::dist {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "AXLE_MPI_LIBRARY";
constexpr const char* kOpenMpi = "libaxle_mpi_openmpi.so";
constexpr const char* kMpich = "libaxle_mpi_mpich.so";

// Returns the names of the libraries that support the launcher of this process. The PMI variables
// are ignored under SLURM, because SLURM sets them for all implementations.
std::vector<std::string> names_for(const Variables& variables) {
    const auto has = [&](const char* name) { return variables(name).has_value(); };
    if (has("OMPI_COMM_WORLD_RANK")) return {kOpenMpi};
    const bool by_pmi = has("PMI_RANK") || has("MPI_LOCALRANKID") || has("MV2_COMM_WORLD_RANK");
    if (by_pmi && !has("SLURM_PROCID")) return {kMpich};
    return {kOpenMpi, kMpich};
}

// Returns the error text if no library exists at `places`.
std::string not_found(const std::string& places) {
    return str("no engine library was found: ", places,
               "; install a build of Axle with MPI (AXLE_MPI=ON), or set ", kVariable,
               " to the path of the library");
}

// Opens the library at a path, which must contain a slash.
MpiLibrary open_at(const std::string& path, std::uint32_t version) {
    const auto [library, error] = kernels::open_library(path);
    if (!error.empty()) return {.error = str("the engine library was not opened: ", error)};
    if (library == nullptr) return {.error = not_found(path)};
    // Converts a pointer to data to a pointer to a function. POSIX requires this conversion for
    // dlsym().
    const auto entry = reinterpret_cast<MpiEntry>(dlsym(library, kMpiEntry));
    if (entry == nullptr) {
        dlclose(library);
        return {.error =
                    str(path, " is not an engine library of Axle: it has no function ", kMpiEntry)};
    }
    const MpiFunctions* const functions = entry(version);
    if (functions != nullptr && functions->version == version &&
        functions->size == sizeof(MpiFunctions))
        return {.functions = functions, .error = {}};
    dlclose(library);
    return {.error = str(path, " was built for another version of Axle: expected interface ",
                         version, "; install the engine library of this version")};
}

void append(std::string& list, const std::string& item) {
    list += str(list.empty() ? "" : ", ", item);
}

}  // namespace

MpiLibrary open_mpi_library(const std::vector<std::string>& folders, const Variables& variables,
                            std::uint32_t version) {
    if (const std::optional<std::string> path = variables(kVariable)) {
        if (path->starts_with('/')) return open_at(*path, version);
        return {.error = str(kVariable, " must be an absolute path: ", in_quotes(*path))};
    }
    const std::vector<std::string> names = names_for(variables);
    std::vector<std::string> found;
    std::string searched;
    for (const std::string& name : names) {
        for (const std::string& folder : folders) {
            std::string path = str(folder, '/', name);
            std::error_code none;
            if (!fs::exists(path, none)) continue;
            found.push_back(std::move(path));
            break;
        }
    }
    if (found.size() == 1) return open_at(found.front(), version);
    if (found.size() > 1)
        return {.error =
                    str("the launcher's variables do not determine the implementation of MPI, so ",
                        kVariable, " must name one of ", found[0], ", ", found[1])};
    for (const std::string& folder : folders) append(searched, folder);
    std::string wanted;
    for (const std::string& name : names) append(wanted, name);
    return {.error = not_found(str(wanted, " in ", searched))};
}

}  // namespace axle::dist
