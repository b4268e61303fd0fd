#include "accel/logger.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <set>
#include <utility>

#include "core/file.h"

namespace axle::inline v0::accel {
namespace {

std::optional<LogLevel> level_from_environment() {
    const auto text = dist::process_variable("ACCELERATE_LOG_LEVEL");
    if (!text) return std::nullopt;
    std::string name = *text;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name == "debug") return LogLevel::debug;
    if (name == "info") return LogLevel::info;
    if (name == "warning") return LogLevel::warning;
    if (name == "error" || name == "critical") return LogLevel::error;
    throw ValueError(str("ACCELERATE_LOG_LEVEL: must be debug, info, warning, error or critical: '",
                         printable(*text), "'"));
}

}  // namespace

Logger::Logger(std::string name, LogLevel level, PartialState state)
    : name_(std::move(name)), level_(level), state_(std::move(state)) {}

void Logger::log(LogLevel level, std::string_view text, LoggerCall call) const {
    const bool is_heard = level >= level_;
    const auto speak = [&] {
        if (!is_heard) return;
        if (state_.use_distributed())
            axle::log(level, "[RANK ", state_.process_index(), "] ", name_, ": ", text);
        else
            axle::log(level, name_, ": ", text);
    };
    if (!call.in_order) {
        if (!call.main_process_only || state_.is_main_process()) speak();
        return;
    }
    // Also for levels that aren't heard, which may be others elsewhere.
    for (int rank = 0; rank < state_.num_processes(); ++rank) {
        if (rank == state_.process_index()) speak();
        state_.wait_for_everyone();
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
    static std::set<std::string, std::less<>> told;
    {
        const std::lock_guard lock(mutex);
        if (!told.emplace(text).second) return;
    }
    warning(text, call);
}

Logger get_logger(std::string name, std::optional<LogLevel> level) {
    auto state = PartialState::current();
    if (!state)
        throw UsageError(
            str("get_logger: '", name, "': make an Accelerator or a PartialState first"));
    if (!level) level = level_from_environment();
    if (level) set_log_level(*level);
    return {std::move(name), level.value_or(LogLevel::warning), std::move(*state)};
}

}  // namespace axle::inline v0::accel
