// What is logged while it lives.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.h"

namespace axle::tests {

class Logged {
  public:
    Logged() {
        set_log_sink([this](LogLevel, std::string_view text) {
            const std::scoped_lock lock(mutex_);
            lines_.emplace_back(text);
        });
    }
    ~Logged() { set_log_sink({}); }
    Logged(const Logged&) = delete;
    Logged& operator=(const Logged&) = delete;

    std::vector<std::string> lines() {
        const std::scoped_lock lock(mutex_);
        return lines_;
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

}  // namespace axle::tests
