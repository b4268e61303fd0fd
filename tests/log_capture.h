// Captures log messages while a LogCapture exists.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/log.h"

namespace axle::tests {

class LogCapture {
  public:
    LogCapture() {
        set_log_sink([this](LogLevel, std::string_view text) {
            const std::scoped_lock lock(mutex_);
            lines_.emplace_back(text);
        });
    }
    ~LogCapture() { set_log_sink({}); }
    LogCapture(const LogCapture&) = delete;
    LogCapture& operator=(const LogCapture&) = delete;

    std::vector<std::string> lines() {
        const std::scoped_lock lock(mutex_);
        return lines_;
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

}  // namespace axle::tests
