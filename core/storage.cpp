#include "core/storage.h"

#include "core/memory.h"

namespace axle::inline v0 {
namespace {

// No tensor has a null pointer, not even an empty one: kernels may do arithmetic on it.
std::size_t at_least_one(std::size_t bytes) { return bytes == 0 ? 1 : bytes; }

}  // namespace

Storage::Storage(std::size_t bytes, Device device) : bytes_(bytes), device_(device) {
    if (device.is_cpu()) data_ = host_memory::allocate(at_least_one(bytes));
}

Storage::Storage(void* data, std::size_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {
    if (!release_) release_ = [] {};
}

Storage::~Storage() {
    if (release_)
        release_();
    else
        host_memory::deallocate(data_, at_least_one(bytes_));
}

}  // namespace axle::inline v0
