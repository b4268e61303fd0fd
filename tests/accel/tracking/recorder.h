// Trackers and log capture for tests of tracking.
#pragma once

#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "accel/tracking/tracker.h"
#include "core/system/log.h"

namespace axle::tests {

// A log sink that collects warnings and errors during its lifetime.
class Messages {
  public:
    Messages() {
        set_log_sink([this](LogLevel level, std::string_view text) {
            const std::lock_guard lock(mutex_);
            if (level >= LogLevel::warning) texts_.emplace_back(text);
        });
    }
    ~Messages() { set_log_sink({}); }
    std::vector<std::string> take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(texts_, {});
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> texts_;
};

// A tracker that records its calls and throws in chosen methods.
struct Recorder : accel::Tracker {
    explicit Recorder(std::string name_, std::string fails_ = "")
        : own_name(std::move(name_)), fails(std::move(fails_)) {}

    std::string name() const override { return own_name; }
    void start() override { record("start"); }
    void store_init_configuration(const Tree& config) override { record(str("config ", config)); }
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override {
        std::string call = str("log ", values);
        if (step) call += str(" at ", *step);
        if (!options.is_null()) call += str(" with ", options);
        record(call);
    }
    void log_images(const Tree&, std::optional<std::int64_t>, const Tree&) override {
        record("log_images");
    }
    void log_table(const std::string& table, const std::vector<std::string>&, const Tree&,
                   std::optional<std::int64_t>, const Tree&) override {
        record("log_table " + table);
    }
    void finish() override { record("finish"); }

    void record(const std::string& call) {
        calls.push_back(call);
        if (!fails.empty() && call.rfind(fails, 0) == 0) throw std::runtime_error("out of paper");
    }

    std::string own_name, fails;
    std::vector<std::string> calls;
};

inline accel::AcceleratorOptions with(std::vector<accel::LogWith> log_with,
                                      const std::string& folder = "") {
    return {.log_with = std::move(log_with), .project_dir = folder};
}

}  // namespace axle::tests
