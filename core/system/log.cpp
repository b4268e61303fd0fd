#include "core/system/log.h"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace axle {
namespace {

// A log sink, wrapped in a type of Axle. A shared library that embeds Axle exports the
// instantiations of std::make_shared for std types, but not for this type.
struct SharedSink {
    LogSink call;
};

struct Sink {
    std::mutex mutex;
    std::shared_ptr<const SharedSink> current;  // null if the default sink is used
};

// Returns the state of the log. It is never destroyed, because destructors of static objects can
// still log. It is not allocated, because the first message can report that there is no memory.
Sink& sink() {
    alignas(Sink) static std::byte memory[sizeof(Sink)];
    static Sink& the = *new (memory) Sink;
    return the;
}

constinit std::atomic<ErrorPolicy> policy = ErrorPolicy::report;
constinit std::atomic<LogLevel> printed = LogLevel::warning;

const char* prefix_of(LogLevel level) {
    switch (level) {
        case LogLevel::error:
            return "axle: error: ";
        case LogLevel::warning:
            return "axle: warning: ";
        case LogLevel::info:
            return "axle: ";
        case LogLevel::debug:
            return "axle: debug: ";
    }
    return "axle: ";
}

// Writes the line with one call, so that lines of several threads are not mixed. If there is no
// memory for the line, writes it in parts.
void print(LogLevel level, std::string_view text) {
    if (level < printed) return;
    try {
        const std::string line = str(prefix_of(level), text, '\n');
        std::fwrite(line.data(), 1, line.size(), stderr);
    } catch (const std::bad_alloc&) {
        std::fputs(prefix_of(level), stderr);
        std::fwrite(text.data(), 1, text.size(), stderr);
        std::fputc('\n', stderr);
    }
}

}  // namespace

void set_log_level(LogLevel level) noexcept { printed = level; }

void set_log_sink(LogSink next) {
    std::shared_ptr<const SharedSink> sink_ref;
    if (next) sink_ref = std::make_shared<const SharedSink>(std::move(next));
    const std::lock_guard lock(sink().mutex);
    sink().current.swap(sink_ref);
}

void log_text(LogLevel level, std::string_view text) noexcept {
    try {
        std::shared_ptr<const SharedSink> sink_ref;
        {
            const std::lock_guard lock(sink().mutex);
            sink_ref = sink().current;
        }
        sink_ref ? sink_ref->call(level, text) : print(level, text);
    } catch (...) {
        // The error is ignored, because there is no other way to report it.
        return;
    }
}

void set_error_policy(ErrorPolicy next) noexcept { policy = next; }

ErrorPolicy error_policy() noexcept { return policy; }

void report_error(const std::exception_ptr& error, std::initializer_list<std::string_view> before,
                  std::string_view after) {
    if (error_policy() == ErrorPolicy::raise) std::rethrow_exception(error);
    report_error_noexcept(error, before, after);
}

void report_error_noexcept(const std::exception_ptr& error,
                           std::initializer_list<std::string_view> before,
                           std::string_view after) noexcept {
    if (error_policy() == ErrorPolicy::ignore) return;
    const auto report = [&](std::string_view reason) noexcept {
        try {
            std::string head;
            for (const std::string_view part : before) head += part;
            log(LogLevel::warning, head, reason, after);
        } catch (...) {
            log_text(LogLevel::warning, reason);
        }
    };
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        report(e.what());
    } catch (...) {
        report("an exception of an unknown type");
    }
}

}  // namespace axle
