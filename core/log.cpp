#include "core/log.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace axle::inline v0 {
namespace {

// A type of our own: a shared library that has Axle inside exports what std makes of its own types.
struct Held {
    LogSink call;
};

struct Sink {
    std::mutex mutex;
    std::shared_ptr<const Held> current;  // null is the default
};

// Never destroyed: what ends with the process may still have something to say.
Sink& sink() {
    static Sink& the = *new Sink;
    return the;
}

constinit std::atomic<TroublePolicy> policy = TroublePolicy::report;
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

// In one call, so that lines of several threads don't mix.
void print(LogLevel level, std::string_view text) {
    if (level < printed) return;
    const std::string line = str(prefix_of(level), text, '\n');
    std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void set_log_level(LogLevel level) noexcept { printed = level; }

void set_log_sink(LogSink next) {
    std::shared_ptr<const Held> held;
    if (next) held = std::make_shared<const Held>(std::move(next));
    const std::lock_guard lock(sink().mutex);
    sink().current.swap(held);
}

void log_text(LogLevel level, std::string_view text) noexcept {
    try {
        std::shared_ptr<const Held> held;
        {
            const std::lock_guard lock(sink().mutex);
            held = sink().current;
        }
        held ? held->call(level, text) : print(level, text);
    } catch (...) {
        // There is nobody left to tell.
        return;
    }
}

void set_trouble_policy(TroublePolicy next) noexcept { policy = next; }

TroublePolicy trouble_policy() noexcept { return policy; }

void trouble(const std::exception_ptr& error, std::initializer_list<std::string_view> before,
             std::string_view after) {
    if (trouble_policy() == TroublePolicy::raise) std::rethrow_exception(error);
    trouble_at_end(error, before, after);
}

void trouble_at_end(const std::exception_ptr& error, std::initializer_list<std::string_view> before,
                    std::string_view after) noexcept {
    if (trouble_policy() == TroublePolicy::ignore) return;
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

}  // namespace axle::inline v0
