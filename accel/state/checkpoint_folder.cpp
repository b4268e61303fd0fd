#include "accel/state/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "accel/state/checkpoint.h"
#include "core/files/folder.h"
#include "core/system/log.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

std::string name_of(const std::string& path) { return fs::path(path).filename().string(); }

}  // namespace

std::optional<std::int64_t> checkpoint_number(const std::string& path) {
    const std::string name = name_of(path);
    const std::size_t begin = name.find_first_of("0123456789");
    std::int64_t number = 0;
    if (begin == std::string::npos) return std::nullopt;
    const auto [end, error] =
        std::from_chars(name.data() + begin, name.data() + name.size(), number);
    if (error != std::errc()) return std::nullopt;
    return number;
}

const CheckpointList::Damaged* CheckpointList::newer_damaged(std::int64_t iteration) const {
    const auto found = std::find_if(damaged.begin(), damaged.end(), [&](const Damaged& checkpoint) {
        return !checkpoint.number || *checkpoint.number > iteration;
    });
    return found == damaged.end() ? nullptr : &*found;
}

CheckpointList list_checkpoints(const std::string& folder) {
    CheckpointList list;
    if (!kind_of(folder)) return list;
    for (const std::string& name : list_folder(folder)) {
        const std::string path = (fs::path(folder) / name).string();
        if (name.starts_with(".axle-") || kind_of(path) != FileKind::folder) continue;
        try {
            if (!is_checkpoint(path)) continue;
            const CheckpointLabel label = checkpoint_label(path);
            if (label.name.empty() || label.name == name)
                list.entries.push_back({path, label.iteration, label.run, label.metric});
        } catch (const FileError& error) {
            list.damaged.push_back({path, error.what(), checkpoint_number(name)});
        }
    }
    std::stable_sort(list.entries.begin(), list.entries.end(),
                     [](const auto& a, const auto& b) { return a.iteration < b.iteration; });
    return list;
}

std::int64_t next_iteration(const CheckpointList& list) {
    std::int64_t next = 0;
    for (const auto& entry : list.entries)
        next = std::max(next, checkpoint_number(entry.path).value_or(-1) + 1);
    for (const auto& entry : list.damaged) next = std::max(next, entry.number.value_or(-1) + 1);
    return next;
}

std::optional<std::string> latest_checkpoint(const std::string& folder) {
    const CheckpointList list = list_checkpoints(folder);
    const bool is_empty = list.entries.empty();
    if (const auto* const damaged =
            list.newer_damaged(is_empty ? INT64_MIN : list.entries.back().iteration))
        throw FileError(str("latest_checkpoint: the newest checkpoint may be damaged: ",
                            damaged->reason, is_empty ? "" : "; the newest undamaged one is ",
                            is_empty ? "" : printable(list.entries.back().path)));
    if (is_empty) return std::nullopt;
    return list.entries.back().path;
}

std::optional<std::string> latest_good_checkpoint(const std::string& folder) {
    const CheckpointList list = list_checkpoints(folder);
    const auto warn = [](const std::string& reason) {
        log(LogLevel::warning, "a damaged checkpoint is skipped: ", reason);
    };
    for (auto entry = list.entries.rbegin(); entry != list.entries.rend(); ++entry) try {
            const CheckpointReader verified(entry->path);
            for (const auto& damaged : list.damaged)
                if (!damaged.number || *damaged.number > entry->iteration) warn(damaged.reason);
            return entry->path;
        } catch (const FileError& error) {
            warn(error.what());
        }
    for (const auto& damaged : list.damaged) warn(damaged.reason);
    return std::nullopt;
}

std::vector<std::string> best_checkpoints(const std::string& folder, std::size_t count,
                                          bool greater_is_better,
                                          const std::optional<std::string>& run) {
    CheckpointList list = list_checkpoints(folder);
    std::erase_if(list.entries,
                  [&](const auto& entry) { return (run && entry.run != *run) || !entry.metric; });
    std::stable_sort(list.entries.begin(), list.entries.end(), [&](const auto& a, const auto& b) {
        if (std::isnan(*a.metric) || std::isnan(*b.metric))
            return !std::isnan(*a.metric) && std::isnan(*b.metric);
        return greater_is_better ? *a.metric > *b.metric : *a.metric < *b.metric;
    });
    std::vector<std::string> best;
    for (const CheckpointList::Entry& entry : list.entries)
        if (best.size() < count) best.push_back(entry.path);
    return best;
}

void rotate_checkpoints(const std::string& folder, std::size_t keep,
                        const std::optional<std::string>& run,
                        const std::vector<std::string>& kept) {
    CheckpointList list = list_checkpoints(folder);
    const auto is_kept = [&](const std::string& path) {
        return std::any_of(kept.begin(), kept.end(), [&](const std::string& other) {
            return name_of(other) == name_of(path);
        });
    };
    std::erase_if(list.entries, [&](const auto& entry) {
        return (run && entry.run != *run) || is_kept(entry.path);
    });
    const std::size_t least = kept.empty() ? std::max<std::size_t>(keep, 1) : keep;
    for (std::size_t i = 0; i + least < list.entries.size(); ++i) try {
            remove_checkpoint(list.entries[i].path);
        } catch (const FileError&) {
            report_error(std::current_exception());
        }
}

}  // namespace axle::accel
