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

#include "accel/partial_state.h"
#include "core/log.h"

namespace axle::inline v0::accel {

struct LoggerCall {
    bool main_process_only = true;
    // Every process speaks, one after the other; all must make the call. Wins over
    // main_process_only.
    bool in_order = false;
};

// Messages go to the log sink of the process (core/log.h), as "[RANK 1] train: text"; the rank is
// left out where there is one process. One thread at a time.
class Logger {
  public:
    Logger(std::string name, LogLevel level, PartialState state);

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
    std::string name_;
    LogLevel level_;
    PartialState state_;
};

// Without a level, that of ACCELERATE_LOG_LEVEL (debug, info, warning, error or critical, in any
// case; ValueError for another), else warning; what is said so becomes the default sink's level too
// (set_log_level). UsageError before there is an Accelerator or a
// PartialState: which process this is would not be known.
Logger get_logger(std::string name, std::optional<LogLevel> level = {});

}  // namespace axle::inline v0::accel
