// Log messages, the function that receives them, and policies for errors that need not stop the
// program.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <string_view>

#include "kernels/error.h"

namespace axle {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

// Receives one message without a line end. A sink is called on the thread that logs, so it must
// support concurrent calls. Exceptions thrown by a sink are ignored.
using LogSink = std::function<void(LogLevel, std::string_view)>;

// Sets the lowest level that the default sink prints, for all threads. The initial level is
// warning.
void set_log_level(LogLevel level) noexcept;

// Replaces the sink of the process. An empty sink restores the default, which writes one line to
// stderr for each message of the log level (set_log_level) or above. A log call that runs at the
// same time can still use the old sink.
void set_log_sink(LogSink sink);

// Sends a message to the sink. Any thread may call this function, also from within a sink.
void log_text(LogLevel level, std::string_view text) noexcept;

// Logs the concatenated parts: log(LogLevel::warning, "tracker '", name, "': ", reason).
template <class... Parts>
void log(LogLevel level, const Parts&... parts) noexcept {
    try {
        log_text(level, str(parts...));
    } catch (...) {
        log_text(level, "a log message was lost: its text could not be built");
    }
}

// Selects the handling of errors that need not stop the program, for example if a tracker cannot
// write or an old checkpoint cannot be removed.
enum class ErrorPolicy : std::uint8_t {
    report,  // log a warning and continue
    raise,   // throw; code that cannot throw (destructors) reports instead
    ignore,  // do nothing
};

// Set and return the error policy of the process, which is initially report.
void set_error_policy(ErrorPolicy policy) noexcept;
ErrorPolicy error_policy() noexcept;

// Handles an exception by the error policy. If the policy is report, logs the parts of `before`,
// the text of the exception and `after` as a warning. If the policy is raise, rethrows the
// exception.
void report_error(const std::exception_ptr& error,
                  std::initializer_list<std::string_view> before = {}, std::string_view after = {});
// Handles an exception like report_error() in code that must not throw: raise is treated as report.
void report_error_noexcept(const std::exception_ptr& error,
                           std::initializer_list<std::string_view> before = {},
                           std::string_view after = {}) noexcept;

}  // namespace axle
