// What the library has to say and no caller asked for: warnings, and failures that must not stop
// the work.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <string_view>

#include "kernels/error.h"

namespace axle::inline v0 {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

// Takes one message, without a line end. Called on the thread that speaks, so several threads may
// call it at once. What it throws is swallowed.
using LogSink = std::function<void(LogLevel, std::string_view)>;

// The least that the default sink prints; warning at first. Of the process.
void set_log_level(LogLevel level) noexcept;

// Replaces the sink of the process; an empty one restores the default, a line on stderr for what
// reaches its level. A call that runs elsewhere may still finish in the old sink.
void set_log_sink(LogSink sink);

// Never throws; from any thread, also from within a sink.
void log_text(LogLevel level, std::string_view text) noexcept;

// log(LogLevel::warning, "tracker '", name, "': ", reason)
template <class... Parts>
void log(LogLevel level, const Parts&... parts) noexcept {
    try {
        log_text(level, str(parts...));
    } catch (...) {
        log_text(level, "a message was lost, for its text could not be built");
    }
}

// What becomes of trouble that need not stop the work: a tracker that can't write, an old
// checkpoint that can't be removed.
enum class TroublePolicy : std::uint8_t {
    report,  // a warning for the sink, and the work goes on
    raise,   // it is thrown; what can't throw, as a destructor, reports it
    ignore,
};

// Of the process; report at first.
void set_trouble_policy(TroublePolicy policy) noexcept;
TroublePolicy trouble_policy() noexcept;

// Does with an exception what the policy says. The parts of `before`, its text and `after` become
// the warning; what is thrown is the exception itself.
void trouble(const std::exception_ptr& error, std::initializer_list<std::string_view> before = {},
             std::string_view after = {});
// For where nothing may be thrown.
void trouble_at_end(const std::exception_ptr& error,
                    std::initializer_list<std::string_view> before = {},
                    std::string_view after = {}) noexcept;

}  // namespace axle::inline v0
