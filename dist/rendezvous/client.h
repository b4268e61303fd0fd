// Private to dist: Client, the implementation of Control.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/rendezvous/call_client.h"
#include "dist/rendezvous/control.h"
#include "dist/rendezvous/control_channel.h"
#include "dist/rendezvous/failure_monitor.h"
#include "dist/rendezvous/server.h"
#include "dist/rendezvous/store_client.h"
#include "dist/transport/launcher_connection.h"

namespace axle::dist {

// The control channel of one process: its connection to the server, and on rank 0 also the server.
class Client final : public Control {
  public:
    Client(const Environment& environment, const ControlOptions& options);
    ~Client() override;
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    const std::string& local_address() const override { return local_address_; }
    Key key_for(std::string_view purpose) const override { return derive_key(key_, purpose); }

    void set(const std::string& key, std::string_view value) override { store_.set(key, value); }
    std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
        return store_.get(key, timeout);
    }
    std::int64_t add(const std::string& key, std::int64_t delta) override {
        return store_.add(key, delta);
    }

    void open_group(std::uint32_t group, const std::vector<int>& ranks) override {
        calls_.open_group(group, ranks);
    }
    void start_call(const CollectiveCall& call, const std::function<void()>& post) override {
        calls_.start_call(call, post);
    }
    std::vector<std::vector<std::int64_t>> wait_for_agreement(std::uint32_t group,
                                                              std::uint64_t sequence) override {
        return calls_.wait_for_agreement(group, sequence);
    }
    void note(std::string_view activity) override { calls_.note(activity); }
    void set_missing_reason(const std::string& why) override { calls_.set_missing_reason(why); }

    std::optional<std::string> failure() const override { return monitor_.failure(); }
    void report(const std::string& text) override { monitor_.report(text); }
    void on_failure(std::function<void()> wake) override { monitor_.on_failure(std::move(wake)); }
    [[noreturn]] void throw_failure(const std::string& otherwise) override {
        monitor_.throw_failure(otherwise);
    }
    void set_leave_reason(const std::string& why) override;

  private:
    void dispatch(const ControlChannel::Lock& lock, const Frame& frame);

    const int rank_, size_;
    const Key key_;
    LauncherConnection launcher_;
    std::unique_ptr<Server> server_;  // only on rank 0; must outlive the connection
    ControlChannel channel_;
    std::string local_address_, leave_reason_;
    StoreClient store_;
    CallClient calls_;
    FailureMonitor monitor_;
};

}  // namespace axle::dist
