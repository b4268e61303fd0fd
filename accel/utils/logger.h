// Logging on several processes: by default the main process alone speaks.
//
//     const auto logger = accel::get_logger("train");
//     logger.info("loaded");
//     logger.info(str("rank ", rank, " has ", n, " samples"), {.main_process_only = false,
//                                                             .in_order = true});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "accel/process/partial_state.h"
#include "core/log.h"

namespace axle::accel {

struct LoggerCall {
    bool main_process_only = true;
    // Every process speaks, one after the other; all must make the call. Wins over
    // main_process_only.
    bool in_order = false;
};

// Messages go to the log sink of the process (core/log.h), as "[RANK 1] train: text"; the rank is
// left out where there is one process. One thread at a time.
//
// Which process this is, a logger finds out with its first message: UsageError if there is neither
// an Accelerator nor a PartialState then.
class Logger {
  public:
    Logger(std::string name, LogLevel level, std::optional<PartialState> state = {});

    void log(LogLevel level, std::string_view text, LoggerCall call = {}) const;
    void debug(std::string_view text, LoggerCall call = {}) const;
    void info(std::string_view text, LoggerCall call = {}) const;
    void warning(std::string_view text, LoggerCall call = {}) const;
    void error(std::string_view text, LoggerCall call = {}) const;
    // A text that this program has not been told by any logger yet.
    void warning_once(std::string_view text, LoggerCall call = {}) const;

    LogLevel level() const { return level_; }
    void set_level(LogLevel level) { level_ = level; }

  private:
    const PartialState& state() const;

    std::string name_;
    LogLevel level_;
    mutable std::optional<PartialState> state_;
};

// "debug", "info", "warning", "error" or "critical", in any case; ValueError for another.
LogLevel log_level(std::string_view name);

// Without a level, that of ACCELERATE_LOG_LEVEL (log_level), else warning; what is said so becomes
// the default sink's level too (set_log_level).
Logger get_logger(std::string name, std::optional<LogLevel> level = {});

}  // namespace axle::accel
