// A stand-in for Control for ranks that are threads of one test. set() and get() use a store, and
// report() records the first failure. Collective calls need no agreement. add(), open_group(),
// note() and on_failure() do nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/rendezvous/control.h"
#include "kernels/error.h"

namespace axle::tests {

struct FakeStore {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string> values;
    std::string failure;  // the first failure that was reported
};

class FakeControl final : public dist::Control {
  public:
    FakeControl(FakeStore& store, int rank, int size, std::string token = "a token")
        : store_(store), rank_(rank), size_(size), token_(std::move(token)) {}

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    const std::string& local_address() const override { return address_; }
    dist::Key key_for(std::string_view purpose) const override {
        return dist::derive_key(dist::hash(token_), purpose);
    }

    void set(const std::string& key, std::string_view value) override {
        const std::lock_guard lock(store_.mutex);
        store_.values[key] = value;
        store_.changed.notify_all();
    }
    std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
        std::unique_lock lock(store_.mutex);
        if (!store_.changed.wait_for(lock, timeout, [&] { return store_.values.contains(key); }))
            throw CommError("store: key is not set: " + key);
        return store_.values[key];
    }
    std::int64_t add(const std::string&, std::int64_t) override { return 0; }
    void open_group(std::uint32_t, const std::vector<int>&) override {}
    void start_call(const dist::CollectiveCall&, const std::function<void()>& post) override {
        post();
    }
    std::vector<std::vector<std::int64_t>> wait_for_agreement(std::uint32_t,
                                                              std::uint64_t) override {
        return {};
    }
    void note(std::string_view) override {}
    std::optional<std::string> failure() const override {
        const std::lock_guard lock(store_.mutex);
        if (store_.failure.empty()) return {};
        return store_.failure;
    }
    void report(const std::string& text) override {
        const std::lock_guard lock(store_.mutex);
        if (store_.failure.empty()) store_.failure = text;
    }
    void on_failure(std::function<void()>) override {}
    void throw_failure(const std::string& otherwise) override { throw CommError(otherwise); }

  private:
    FakeStore& store_;
    int rank_, size_;
    std::string token_;
    std::string address_ = "127.0.0.1";
};

}  // namespace axle::tests
