#include "core/storage.h"

#include "core/memory.h"

namespace axle {

Storage::Storage(std::size_t bytes, Device device) : bytes_(bytes), device_(device) {
    if (device.is_cpu()) data_ = host_memory::allocate(bytes);
}

Storage::Storage(void* data, std::size_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {
    if (!release_) release_ = [] {};
}

Storage::~Storage() {
    if (release_)
        release_();
    else
        host_memory::deallocate(data_, bytes_);
}

}  // namespace axle
