#include "accel/utils/logger.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <set>
#include <utility>

#include "core/files/file.h"

namespace axle::accel {
namespace {

std::optional<LogLevel> level_named(std::string_view text) {
    std::string name(text);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name == "debug") return LogLevel::debug;
    if (name == "info") return LogLevel::info;
    if (name == "warning") return LogLevel::warning;
    if (name == "error" || name == "critical") return LogLevel::error;
    return std::nullopt;
}

LogLevel level_of(const char* what, std::string_view text) {
    const auto level = level_named(text);
    if (!level)
        throw ValueError(str(what, ": must be debug, info, warning, error or critical: '",
                             printable(text), "'"));
    return *level;
}

}  // namespace

LogLevel log_level(std::string_view name) { return level_of("log_level", name); }

Logger::Logger(std::string name, LogLevel level, std::optional<PartialState> state)
    : name_(std::move(name)), level_(level), state_(std::move(state)) {}

const PartialState& Logger::state() const {
    if (!state_) state_ = PartialState::current();
    if (!state_)
        throw UsageError(str("get_logger: '", name_,
                             "' needs an Accelerator or a PartialState; create one first"));
    return *state_;
}

void Logger::log(LogLevel level, std::string_view text, LoggerCall call) const {
    const PartialState& here = state();
    const bool is_enabled = level >= level_;
    const auto write = [&] {
        if (!is_enabled) return;
        if (here.use_distributed())
            axle::log(level, "[RANK ", here.process_index(), "] ", name_, ": ", text);
        else
            axle::log(level, name_, ": ", text);
    };
    if (!call.in_order) {
        if (!call.main_process_only || here.is_main_process()) write();
        return;
    }
    // The loop also runs if this process does not log this level. The levels of other processes can
    // differ, and all processes must call the barriers.
    for (int rank = 0; rank < here.num_processes(); ++rank) {
        if (rank == here.process_index()) write();
        here.wait_for_everyone();
    }
}

void Logger::debug(std::string_view text, LoggerCall call) const {
    log(LogLevel::debug, text, call);
}
void Logger::info(std::string_view text, LoggerCall call) const { log(LogLevel::info, text, call); }
void Logger::warning(std::string_view text, LoggerCall call) const {
    log(LogLevel::warning, text, call);
}
void Logger::error(std::string_view text, LoggerCall call) const {
    log(LogLevel::error, text, call);
}

void Logger::warning_once(std::string_view text, LoggerCall call) const {
    static std::mutex mutex;
    static std::set<std::string, std::less<>> logged;
    {
        const std::lock_guard lock(mutex);
        if (!logged.emplace(text).second) return;
    }
    warning(text, call);
}

Logger get_logger(std::string name, std::optional<LogLevel> level) {
    if (!level)
        if (const auto text = dist::process_variable("ACCELERATE_LOG_LEVEL"))
            level = level_of("ACCELERATE_LOG_LEVEL", *text);
    if (level) set_log_level(*level);
    return {std::move(name), level.value_or(LogLevel::warning)};
}

}  // namespace axle::accel
