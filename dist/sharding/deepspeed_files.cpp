#include "dist/sharding/deepspeed_files.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/files/file.h"
#include "core/files/folder.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr const char* kLatest = "latest";

// The parts of a file name such as bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt.
struct FileName {
    bool is_optimizer = false;
    std::optional<std::size_t> rank;  // nullopt for mp_rank_00_model_states.pt
    std::size_t model_part = 0;       // the number after mp_rank_
};

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
    throw FileError(str(printable(path), ": ", reason));
}

bool skip(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

bool skip_number(std::string_view& text, std::size_t& number) {
    constexpr std::size_t kMost = 1000000;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number > kMost) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

std::optional<FileName> parse(std::string_view name) {
    FileName parsed;
    std::size_t rank = 0;
    const bool is_bf16 = skip(name, "bf16_");
    if (skip(name, "zero_pp_rank_")) {
        if (!skip_number(name, rank) || !skip(name, "_")) return std::nullopt;
        parsed.rank = rank;
    } else if (is_bf16) {
        return std::nullopt;
    }
    if (!skip(name, "mp_rank_") || !skip_number(name, parsed.model_part)) return std::nullopt;
    if (name == "_model_states.pt" && !is_bf16) return parsed;
    parsed.is_optimizer = true;
    // Early versions of DeepSpeed wrote names without the underscore.
    const bool is_state = name == "_optim_states.pt" || name == "optim_states.pt";
    return is_state && parsed.rank ? std::optional(parsed) : std::nullopt;
}

bool has_files(const std::string& folder) {
    if (kind_of(folder + "/.") != FileKind::folder) return false;
    return std::ranges::any_of(list_folder(folder),
                               [](const std::string& name) { return parse(name).has_value(); });
}

}  // namespace

std::string find_deepspeed_folder(const std::string& folder) {
    constexpr std::int64_t kLongestTag = 4096;
    if (has_files(folder)) return folder;
    if (kind_of(folder + "/" + kLatest) != FileKind::file) return "";
    const InputFile file(folder, kLatest);
    if (file.size() > kLongestTag) return "";
    std::string tag = file.read(kLongestTag);
    while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' '))
        tag.pop_back();
    if (tag.empty() || tag == "." || tag == ".." || tag.find('/') != std::string::npos ||
        tag.find('\0') != std::string::npos)
        return "";
    return has_files(folder + "/" + tag) ? folder + "/" + tag : "";
}

DeepSpeedFiles deepspeed_files(const std::string& folder) {
    DeepSpeedFiles found;
    std::map<std::size_t, std::string> models, optimizers;
    std::string whole;  // mp_rank_00_model_states.pt
    for (const std::string& name : list_folder(folder)) {
        if (name.starts_with("expp_rank_") || name.find("expert_") != std::string::npos)
            fail(folder + "/" + name, "mixtures of experts of DeepSpeed are not supported");
        const std::optional<FileName> parsed = parse(name);
        if (!parsed) continue;
        if (parsed->model_part > 0)
            fail(folder + "/" + name,
                 "checkpoints of tensor or pipeline parallel training are not supported");
        if (!parsed->rank) {
            if (!std::exchange(whole, name).empty())
                fail(folder + "/" + name, "the folder has two files for the same process");
            continue;
        }
        auto& files = parsed->is_optimizer ? optimizers : models;
        if (!files.emplace(*parsed->rank, name).second)
            fail(folder + "/" + name, "the folder has two files for the same process");
    }
    const auto in_order = [&](const std::map<std::size_t, std::string>& files,
                              std::vector<std::string>& names) {
        for (const auto& [rank, name] : files) {
            if (rank != names.size())
                fail(folder, str("the file of process ", names.size(), " is missing: found ",
                                 printable(name)));
            names.push_back(name);
        }
    };
    in_order(models, found.models);
    in_order(optimizers, found.optimizers);
    if (found.models.empty() == whole.empty())
        fail(folder, whole.empty() ? "mp_rank_00_model_states.pt is missing"
                                   : "has states of the model from stage 3 and from another stage");
    if (!whole.empty()) found.models = {whole};
    return found;
}

}  // namespace axle::dist
