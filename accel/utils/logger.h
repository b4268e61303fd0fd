// Logging with several processes: by default only the main process logs.
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
    // All processes log, one after the other; all must make the call. Takes precedence over
    // main_process_only.
    bool in_order = false;
};

// Writes messages to the log sink of the process (core/log.h), as "[RANK 1] train: text"; without
// the rank if there is one process. Used by one thread.
//
// A logger finds its process with its first message, which throws UsageError if there is neither an
// Accelerator nor a PartialState.
class Logger {
  public:
    Logger(std::string name, LogLevel level, std::optional<PartialState> state = {});

    void log(LogLevel level, std::string_view text, LoggerCall call = {}) const;
    void debug(std::string_view text, LoggerCall call = {}) const;
    void info(std::string_view text, LoggerCall call = {}) const;
    void warning(std::string_view text, LoggerCall call = {}) const;
    void error(std::string_view text, LoggerCall call = {}) const;
    // Logs a text that no logger of the program has logged with this method before.
    void warning_once(std::string_view text, LoggerCall call = {}) const;

    LogLevel level() const { return level_; }
    void set_level(LogLevel level) { level_ = level; }

  private:
    const PartialState& state() const;

    std::string name_;
    LogLevel level_;
    mutable std::optional<PartialState> state_;
};

// Parses "debug", "info", "warning", "error" or "critical", in any case. Throws ValueError for
// other names.
LogLevel log_level(std::string_view name);

// Returns a logger. The default level is ACCELERATE_LOG_LEVEL (log_level), else warning. A level
// from either source also becomes the level of the default sink (set_log_level).
Logger get_logger(std::string name, std::optional<LogLevel> level = {});

}  // namespace axle::accel
