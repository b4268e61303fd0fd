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
#include "core/system/log.h"

namespace axle::accel {

struct LoggerCall {
    bool main_process_only = true;
    // Whether all processes log, in the order of their ranks. All processes must then make the
    // call. Takes precedence over main_process_only.
    bool in_order = false;
};

// A logger that writes messages such as "[RANK 1] train: text" to the log sink of the process
// (core/system/log.h), unless their level is below level(). With one process, messages do not
// contain the rank. Used by one thread.
//
// Unless the constructor gets a state, the first message uses the state of the program. Messages
// throw UsageError if there is neither an Accelerator nor a PartialState.
class Logger {
  public:
    Logger(std::string name, LogLevel level, std::optional<PartialState> state = {});

    void log(LogLevel level, std::string_view text, LoggerCall call = {}) const;
    void debug(std::string_view text, LoggerCall call = {}) const;
    void info(std::string_view text, LoggerCall call = {}) const;
    void warning(std::string_view text, LoggerCall call = {}) const;
    void error(std::string_view text, LoggerCall call = {}) const;
    // Logs a warning. Does nothing if this method was called with the same text before, on any
    // logger of this process, even if that call logged nothing.
    void warning_once(std::string_view text, LoggerCall call = {}) const;

    LogLevel level() const { return level_; }
    void set_level(LogLevel level) { level_ = level; }

  private:
    const PartialState& state() const;

    std::string name_;
    LogLevel level_;
    mutable std::optional<PartialState> state_;
};

// Parses "debug", "info", "warning", "error" or "critical", ignoring case. "critical" is the same
// level as "error". Throws ValueError for other names.
LogLevel log_level(std::string_view name);

// Returns a logger. If `level` is not given, it is the level that ACCELERATE_LOG_LEVEL names, or
// warning if this variable is not set. Throws ValueError if log_level() rejects the name. A level
// that is given or read is also set as the level of the default sink (set_log_level).
Logger get_logger(std::string name, std::optional<LogLevel> level = {});

}  // namespace axle::accel
