// Storage: the memory of a tensor, which is allocated by Axle, provided by the caller, or absent
// (meta).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/device.h"

namespace axle {

class Storage {
  public:
    // Allocates uninitialized memory on the device. GPU memory is allocated for the current stream;
    // nothing is allocated on meta. Pinned memory is page-locked CPU memory that a GPU can copy
    // asynchronously. Throws DeviceError if pinned memory is requested without CUDA.
    Storage(std::size_t bytes, Device device, bool pinned = false);
    // Uses existing memory, which must stay valid until the storage is destroyed. The destructor
    // calls `release` unless it is empty.
    Storage(void* data, std::size_t bytes, Device device, std::function<void()> release);
    ~Storage();
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    Device device() const { return device_; }
    bool is_pinned() const { return pinned_; }
    // Declares that work queued on the current stream of a GPU uses the memory. The memory is not
    // reused before that work is done. Call it if a tensor of one stream is used on another stream.
    void record_stream(int device) const;

    // Returns the number of in-place changes through any view. Saved tensors compare it to detect
    // changes.
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

}  // namespace axle
