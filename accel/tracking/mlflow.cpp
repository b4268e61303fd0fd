#include "accel/tracking/mlflow.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "accel/config/yaml.h"
#include "accel/tracking/append_file.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "core/text/text.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRunIdDigits = 32, kMaxParam = 500;
constexpr std::int64_t kRunning = 1, kFinished = 3;  // MLflow's RunStatus

std::int64_t now_in_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

bool is_ascii_alphanumeric(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::string text_option(const Tree& options, const char* name, std::string otherwise) {
    const Tree* const value = options.is_map() ? options.find(name) : nullptr;
    if (value == nullptr || value->is_null()) return otherwise;
    if (!value->is_string())
        throw ValueError(str("mlflow: the option ", name, " must be a string: ", *value));
    return value->string();
}

// Returns the text with each "%XX" replaced by the byte with this hexadecimal number.
std::string percent_decoded(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned byte = 0;
        const char* const digits = text.data() + i + 1;
        if (text[i] == '%' && text.size() - i > 2 &&
            std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
            out += static_cast<char>(byte);
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

// Returns the folder of a tracking URI, or "" for an empty one.
std::string folder_of_uri(const std::string& uri) {
    if (uri.starts_with("file://")) return percent_decoded(uri.substr(7));
    if (uri.starts_with("file:")) return percent_decoded(uri.substr(5));
    if (uri.find("://") != std::string::npos || uri.starts_with("databricks"))
        throw ValueError(
            str("mlflow: MLFLOW_TRACKING_URI must be a path or a file: URI, because "
                "Axle does not send metrics to servers: ",
                in_quotes(uri)));
    return uri;
}

std::string file_uri(const std::string& path) {
    static constexpr char kHex[] = "0123456789ABCDEF";
    std::string uri = "file://";
    for (const char c : fs::absolute(path).lexically_normal().string()) {
        const auto byte = static_cast<unsigned char>(c);
        if (is_ascii_alphanumeric(c) || std::string_view("/-._~").find(c) != std::string_view::npos)
            uri += c;
        else
            uri += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
    return uri;
}

// Throws ValueError unless MLflow accepts the name of a metric or param.
void check_tag(const std::string& tag) {
    const bool has_valid_characters = std::ranges::all_of(tag, [](char c) {
        return is_ascii_alphanumeric(c) ||
               std::string_view("_-. :/").find(c) != std::string_view::npos;
    });
    bool has_valid_parts = true;
    for (std::size_t begin = 0; begin <= tag.size();) {
        const std::size_t end = std::min(tag.find('/', begin), tag.size());
        const std::string part = tag.substr(begin, end - begin);
        if (part.empty() || part == "." || part == "..") has_valid_parts = false;
        begin = end + 1;
    }
    if (!has_valid_characters || !has_valid_parts)
        throw ValueError(
            str("mlflow: a tag must have letters, digits and '_-. :/' only, and no part "
                "that is empty, '.' or '..': ",
                in_quotes(tag)));
}

std::string number_text(const Tree& value) {
    std::string text =
        lower(to_json(value.is_boolean() ? Tree(value.boolean() ? 1 : 0) : value, -1));
    std::erase(text, '"');  // to_json() puts NaN and infinities in quotes
    return text;
}

// Returns a map, or null if the file is missing or is not the YAML of a map.
Tree read_meta(const fs::path& path) {
    try {
        const Tree meta = parse_yaml(read_file(path.string(), kMaxYaml), path.string());
        return meta.is_map() ? meta : Tree();
    } catch (const Error&) {
        return {};
    }
}

// Calls f with the name and the meta.yaml of each folder in `folder` that has one.
template <class F>
void for_each_meta(const std::string& folder, F&& f) {
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder, unreadable))
        if (const Tree meta = read_meta(entry.path() / "meta.yaml"); meta.is_map())
            f(entry.path().filename().string(), meta);
}

std::string string_in(const Tree& map, const char* name) {
    const Tree* const value = map.find(name);
    return value != nullptr && value->is_string() ? value->string() : "";
}
std::int64_t integer_in(const Tree& map, const char* name) {
    const Tree* const value = map.find(name);
    return value != nullptr && value->is_integer() ? value->integer() : 0;
}

// Returns the step of a line "<time> <value> <step>", or nullopt for other lines.
std::optional<std::int64_t> step_of_line(std::string_view line) {
    const std::size_t space = line.rfind(' ');
    if (space == std::string_view::npos) return std::nullopt;
    std::int64_t step = 0;
    const auto [end, error] =
        std::from_chars(line.data() + space + 1, line.data() + line.size(), step);
    if (error != std::errc() || end != line.data() + line.size()) return std::nullopt;
    return step;
}

}  // namespace

MlflowTracker::MlflowTracker(const TrackerRun& run)
    : experiment_name_(variable("MLFLOW_EXPERIMENT_NAME")),
      run_id_option_(variable("MLFLOW_RUN_ID")),
      purge_step_(purge_step("mlflow", run.options)) {
    check_options("mlflow", run.options,
                  {"experiment_name", "run_name", "run_id", "logging_dir", "purge_step"});
    if (experiment_name_.empty()) experiment_name_ = run.project_name;
    experiment_name_ = text_option(run.options, "experiment_name", experiment_name_);
    run_name_ = text_option(run.options, "run_name", run.project_name);
    run_id_option_ = text_option(run.options, "run_id", run_id_option_);
    store_ = folder_of_uri(variable("MLFLOW_TRACKING_URI"));
    if (store_.empty()) store_ = run.logging_dir.empty() ? "mlruns" : run.logging_dir + "/mlruns";
    store_ = text_option(run.options, "logging_dir", store_);
    if (!std::ranges::all_of(run_id_option_, is_ascii_alphanumeric))
        throw ValueError(
            str("mlflow: run_id must have letters and digits only: ", in_quotes(run_id_option_)));
}

std::string MlflowTracker::find_experiment() const {
    std::string found;
    for_each_meta(store_, [&](const std::string& id, const Tree& meta) {
        if (string_in(meta, "name") == experiment_name_) found = id;
    });
    return found;
}

std::string MlflowTracker::newest_run() const {
    std::string newest;
    std::int64_t time = -1;
    for_each_meta(store_ + "/" + experiment_id_, [&](const std::string& id, const Tree& meta) {
        if (const std::int64_t start = integer_in(meta, "start_time"); start > time)
            time = start, newest = id;
    });
    return newest;
}

void MlflowTracker::start() {
    create_directories(store_);
    experiment_id_ = find_experiment();
    if (experiment_id_.empty()) {
        const std::int64_t now = now_in_ms();
        experiment_id_ = str(now, 10000 + std::strtol(random_hex(4).c_str(), nullptr, 16));
        const std::string folder = store_ + "/" + experiment_id_;
        create_directories(folder);
        write_file_atomically(folder + "/meta.yaml",
                              to_yaml(Tree{{"artifact_location", file_uri(folder)},
                                           {"creation_time", now},
                                           {"experiment_id", experiment_id_},
                                           {"last_update_time", now},
                                           {"lifecycle_stage", "active"},
                                           {"name", experiment_name_}}));
    }
    started_ = true;
    if (!run_id_option_.empty()) open(run_id_option_, purge_step_);
}

void MlflowTracker::resume(std::optional<std::int64_t> purge_step) {
    if (folder_.empty()) open(newest_run(), purge_step_ ? purge_step_ : purge_step);
}

// Opens the run with this id, or creates a run if the id is empty.
void MlflowTracker::open(std::string run_id, std::optional<std::int64_t> purge_step) {
    const bool is_new = run_id.empty();
    run_id_ = is_new ? random_hex(kRunIdDigits) : std::move(run_id);
    const std::string folder = store_ + "/" + experiment_id_ + "/" + run_id_;
    if (is_new) {
        for (const char* part : {"artifacts", "metrics", "params", "tags"})
            create_directories(folder + "/" + part);
        start_time_ = now_in_ms();
        last_step_ = 0;
        write_file_atomically(folder + "/tags/mlflow.runName", run_name_);
    } else {
        const Tree meta = read_meta(folder + "/meta.yaml");
        if (!meta.is_map())
            throw FileError(str("mlflow: the experiment ", in_quotes(experiment_name_),
                                " has no run ", run_id_, ": ", printable(folder),
                                "/meta.yaml is missing or invalid"));
        start_time_ = integer_in(meta, "start_time");
        run_name_ = string_in(meta, "run_name");
    }
    folder_ = folder;
    write_meta(kRunning, std::nullopt);
    if (purge_step) remove_from(*purge_step);
    write_params();
}

void MlflowTracker::open_if_needed() {
    if (!started_) throw UsageError("mlflow: log() was called before start() or after finish()");
    if (folder_.empty()) open("", std::nullopt);
}

// Removes the values of this step and later steps from all metrics.
void MlflowTracker::remove_from(std::int64_t purge_step) {
    last_step_ = std::max<std::int64_t>(purge_step - 1, 0);
    for (const auto& entry : fs::recursive_directory_iterator(folder_ + "/metrics")) {
        if (!entry.is_regular_file() || entry.is_symlink()) continue;
        const std::string path = entry.path().string();
        const MappedFile file(path);
        const std::string_view text = text_of(file);
        std::string kept;
        std::size_t begin = 0;
        for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string_view::npos;) {
            const std::string_view line = text.substr(begin, end - begin);
            const auto step = step_of_line(line);
            if (step && *step < purge_step) kept.append(line) += '\n';
            begin = end + 1;
        }
        write_file_atomically(path, kept);
    }
}

void MlflowTracker::write_meta(std::int64_t status, std::optional<std::int64_t> end) const {
    write_file_atomically(folder_ + "/meta.yaml",
                          to_yaml(Tree{{"artifact_uri", file_uri(folder_ + "/artifacts")},
                                       {"end_time", end ? Tree(*end) : Tree()},
                                       {"entry_point_name", ""},
                                       {"experiment_id", experiment_id_},
                                       {"lifecycle_stage", "active"},
                                       {"run_id", run_id_},
                                       {"run_name", run_name_},
                                       {"source_name", ""},
                                       {"source_type", 4},  // LOCAL
                                       {"source_version", ""},
                                       {"start_time", start_time_},
                                       {"status", status},
                                       {"tags", Tree::list()},
                                       {"user_id", "unknown"}}));
}

void MlflowTracker::store_init_configuration(const Tree& config) {
    config_ = config;
    if (!folder_.empty()) write_params();
}

// Writes the stored configuration. A param of an earlier start of the run keeps its value, because
// MLflow allows no other.
void MlflowTracker::write_params() {
    if (config_.is_null()) return;
    const Tree config = std::exchange(config_, {});
    for (const auto& [tag, value] : flattened(summarised(config))) {
        check_tag(tag);
        const std::string text = value.is_string() ? value.string() : to_json(value, -1);
        const std::string path = folder_ + "/params/" + tag;
        if (text.size() > kMaxParam) {
            axle::log(LogLevel::warning, "mlflow: the param ", in_quotes(tag), " has ", text.size(),
                      " bytes, more than ", kMaxParam, ", and is left out");
            continue;
        }
        std::error_code unreadable;
        if (fs::exists(path, unreadable)) continue;
        create_directories(fs::path(path).parent_path().string());
        write_file_atomically(path, text);
    }
}

void MlflowTracker::log(const Tree& values, std::optional<std::int64_t> step, const Tree&) {
    open_if_needed();
    last_step_ = step.value_or(last_step_ + 1);
    for (const auto& [tag, value] : flattened(summarised(values))) {
        if (!value.is_number() && !value.is_boolean()) continue;
        const std::string path = folder_ + "/metrics/" + tag;
        if (!tags_.contains(tag)) {
            check_tag(tag);
            create_directories(fs::path(path).parent_path().string());
            tags_.insert(tag);
        }
        // The file is closed again, because a run can have more tags than a process can open files.
        AppendFile(path).append(str(now_in_ms(), ' ', number_text(value), ' ', last_step_, '\n'));
    }
}

void MlflowTracker::finish() {
    open_if_needed();
    started_ = false;
    tags_.clear();
    write_meta(kFinished, now_in_ms());
    folder_.clear();
}

}  // namespace axle::accel
