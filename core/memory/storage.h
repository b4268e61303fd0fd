// A tensor's memory: allocated by Axle, borrowed from someone else, or absent (meta).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/device.h"

namespace axle::inline v0 {

class Storage {
  public:
    // Fresh memory of the device, not initialised; on a GPU, for its current stream. On meta: a
    // size without memory. Pinned memory is the CPU's, page-locked, so that a GPU copies it while
    // the program goes on; DeviceError without CUDA.
    Storage(std::size_t bytes, Device device, bool pinned = false);
    // Memory that somebody else owns: `release` is called when the last tensor lets go of it.
    Storage(void* data, std::size_t bytes, Device device, std::function<void()> release);
    ~Storage();
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    Device device() const { return device_; }
    bool is_pinned() const { return pinned_; }
    // The memory is used by work that is queued on the current stream of a GPU: it is not handed
    // out again before that is done. Needed where a tensor of one stream is used on another.
    void record_stream(int device) const;

    // Counts the in-place changes through any view; saved tensors compare it.
    std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
    void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
    Device device_;
    bool pinned_ = false;
    std::atomic<std::uint32_t> version_ = 0;
    std::function<void()> release_;
};

}  // namespace axle::inline v0
