// Implements StateFiles::newest_directories(), which finds the checkpoints that load_state() tries
// without input_dir.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/state/checkpoint_folder.h"
#include "accel/state/state_files.h"
#include "core/files/file.h"
#include "core/files/folder.h"
#include "core/system/log.h"
#include "dist/group/shared_error.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

// Returns 12 for "checkpoint_12", the form of Accelerate's names, and nullopt for other names.
std::optional<std::int64_t> accelerate_number(const std::string& name) {
    const auto number = checkpoint_number(name);
    return number && name == str("checkpoint_", *number) ? number : std::nullopt;
}

// Returns the checkpoints of Axle and Accelerate in a folder: {"whole": a map from names to
// iterations, "damaged": a map from the names of damaged ones to {"number", "reason"}}.
Tree states_in(const std::string& folder) {
    Tree whole = Tree::map(), damaged = Tree::map();
    const CheckpointList list = list_checkpoints(folder);
    for (const auto& entry : list.entries)
        whole.set(fs::path(entry.path).filename().string(), entry.iteration);
    for (const auto& entry : list.damaged)
        damaged.set(fs::path(entry.path).filename().string(),
                    Tree{{"number", entry.number.value_or(INT64_MAX)}, {"reason", entry.reason}});
    if (kind_of(folder))
        for (const std::string& name : list_folder(folder))
            if (const auto number = accelerate_number(name);
                number && !whole.contains(name) && !damaged.contains(name) &&
                StateFolder::is_of_accelerate((fs::path(folder) / name).string()))
                whole.set(name, *number);
    return Tree{{"whole", std::move(whole)}, {"damaged", std::move(damaged)}};
}

// Throws FileError if a damaged checkpoint may be newer than `newest`. Only warns if `skips`.
void check_newer_damage(const std::vector<Tree>& processes, std::int64_t newest,
                        const std::string& newest_path, bool skips) {
    std::map<std::string, std::string> newer;
    for (std::size_t rank = 0; rank < processes.size(); ++rank)
        for (const auto& [name, entry] : processes[rank]["damaged"].entries())
            if (entry["number"].integer() > newest)
                newer.try_emplace(name, str(processes.size() > 1 ? str("process ", rank, ": ") : "",
                                            entry["reason"].string()));
    for (const auto& [name, reason] : newer) {
        if (!skips)
            throw FileError(str("load_state: the newest checkpoint may be damaged: ", reason,
                                newest_path.empty() ? "" : "; the newest undamaged one is ",
                                printable(newest_path),
                                newest_path.empty() ? "" : "; pass its path or skip_damaged"));
        axle::log(LogLevel::warning, "load_state: a damaged checkpoint is skipped: ", reason);
    }
}

}  // namespace

// Returns the paths of the checkpoints that have a valid manifest on all processes, newest first.
// Throws ValueError without automatic_checkpoint_naming, FileError if there are none, and the
// errors of check_newer_damage().
std::vector<std::string> StateFiles::newest_directories(bool skip_damaged) const {
    if (!project_.automatic_checkpoint_naming)
        throw ValueError(
            "load_state: a directory is needed, because automatic_checkpoint_naming is off; pass "
            "input_dir");
    const fs::path folder = fs::path(project_.project_dir) / "checkpoints";
    const std::vector<Tree> processes = dist::gather_or_throw(
        *processes_.process_group(), "load_state", [&] { return states_in(folder.string()); });
    std::vector<std::pair<std::int64_t, std::string>> found;
    for (const auto& [name, iteration] : processes.front()["whole"].entries())
        if (std::all_of(processes.begin(), processes.end(),
                        [&](const Tree& states) { return states["whole"].contains(name); }))
            found.emplace_back(iteration.integer(), (folder / name).string());
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    check_newer_damage(processes, found.empty() ? INT64_MIN : found.front().first,
                       found.empty() ? "" : found.front().second, skip_damaged);
    if (found.empty())
        throw FileError(str("load_state: ", printable(folder.string()),
                            " contains no checkpoint that every process can read; pass input_dir"));
    std::vector<std::string> paths;
    paths.reserve(found.size());
    for (auto& [iteration, path] : found) paths.push_back(std::move(path));
    return paths;
}

}  // namespace axle::accel
