// Storage: the memory of a tensor, which is allocated by Axle, passed by the caller, supplied on
// use by a ShardProvider, or absent (meta).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/device.h"

namespace axle {

class Storage;
class Tensor;

// Supplies the elements of a storage when they are used. The storage of a sharded parameter has its
// elements on several processes (dist/sharding/). A deferred storage has not computed them yet
// (nn/deferred_storage.h).
class ShardProvider {
  public:
    virtual ~ShardProvider() = default;
    // Called when the elements of a storage without memory are needed, on the thread that needs
    // them. Must call set_memory() of the storage, or throw.
    virtual void provide(Storage& storage) = 0;
    // Called before the function `op` copies elements to the program's memory, changes elements or
    // replaces the storage. Throws UsageError if this is not allowed.
    virtual void check_host_access(const char* op) const = 0;
    // Called by bump_version() of the storage, when this process has changed elements.
    virtual void changed() = 0;
    // Returns an address that identifies the group of processes that share the storage, or null if
    // only this process uses it.
    virtual const void* processes() const = 0;
    // Gathers the 0-d tensor `number` of each process that shares the storage. Returns them as a
    // 1-d tensor, in rank order. All of these processes must call this function.
    virtual Tensor gather_numbers(const Tensor& number) const = 0;
};

class Storage {
  public:
    // Allocates uninitialized memory on the device. GPU memory is allocated for the current stream;
    // nothing is allocated on meta. Pinned memory is page-locked CPU memory that a GPU can copy
    // asynchronously. Throws OutOfMemory, and DeviceError if the device does not exist. Pinned
    // memory throws DeviceError if the device is not the CPU, or if no GPU is available.
    Storage(std::size_t bytes, Device device, bool pinned = false);
    // Uses existing memory, which must stay valid until the storage is destroyed. The destructor
    // calls `release` unless it is empty.
    Storage(void* data, std::size_t bytes, Device device, std::function<void()> release);
    // Creates a storage without memory, which the provider supplies on use. The provider must call
    // set_provider(nullptr) before it is destroyed. After that, data() throws UsageError if the
    // storage has no memory.
    Storage(std::size_t bytes, Device device, ShardProvider& provider);
    ~Storage();
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    // Returns the memory, which a provider supplies first if necessary. Returns null on the meta
    // device.
    void* data() const {
        if (data_ == nullptr && is_provided_) [[unlikely]]
            provide();
        return data_;
    }
    std::size_t bytes() const { return bytes_; }
    Device device() const { return device_; }
    bool is_pinned() const { return pinned_; }
    // Declares that work queued on the current stream of a GPU uses the memory. The memory, unless
    // the caller passed it, is not reused before that work is done. Call it if a tensor of one
    // stream is used on another stream.
    void record_stream(int device) const;

    // --- storages with a provider
    ShardProvider* provider() const { return provider_; }
    void set_provider(ShardProvider* provider) { provider_ = provider; }
    bool has_memory() const { return data_ != nullptr; }
    // Makes this storage use the memory of another storage, or no memory if `memory` is null.
    void set_memory(std::shared_ptr<Storage> memory);

    // Returns the number of in-place changes through any view. Saved tensors compare this number to
    // detect changes.
    std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
    void bump_version() {
        version_.fetch_add(1, std::memory_order_relaxed);
        if (provider_ != nullptr) provider_->changed();
    }

  private:
    void provide() const;

    void* data_ = nullptr;
    std::size_t bytes_ = 0;
    Device device_;
    bool pinned_ = false;
    bool is_provided_ = false;  // whether the storage was created with a provider
    std::atomic<std::uint32_t> version_ = 0;
    std::function<void()> release_;
    ShardProvider* provider_ = nullptr;
    std::shared_ptr<Storage> memory_;  // the memory of a storage with a provider
};

}  // namespace axle
