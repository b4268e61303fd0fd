#include "core/storage.h"

#include <utility>

#include "core/cuda.h"
#include "core/memory/memory.h"
#include "kernels/error.h"
#if AXLE_CUDA
#include "core/cuda/context.h"
#include "core/cuda/memory.h"
#endif

namespace axle {
namespace {

// Returns the number of bytes to allocate, at least one. Even an empty tensor has a pointer,
// because kernels do arithmetic with it.
std::size_t at_least_one(std::size_t bytes) { return bytes == 0 ? 1 : bytes; }

}  // namespace

Storage::Storage(std::size_t bytes, Device device, bool pinned)
    : bytes_(bytes), device_(device), pinned_(pinned) {
    if (pinned && !(device.is_cpu() && cuda::is_available()))
        throw DeviceError(device.is_cpu()
                              ? str("pinned memory: ", cuda::why_unavailable())
                              : str("pinned memory: the device must be the CPU: it is ", device));
    if (device.is_cpu() && !pinned) data_ = host_memory::allocate(at_least_one(bytes));
#if !AXLE_CUDA
    if (device.is_cuda())
        throw DeviceError(str(device, ": ", cuda::why_unavailable(), "; use the CPU"));
#else
    if (pinned) data_ = cuda::pinned_memory::allocate(at_least_one(bytes));
    if (device.is_cuda())
        data_ = cuda::device_memory::allocate(device.index, at_least_one(bytes),
                                              cuda::context(device.index).stream());
#endif
}

Storage::Storage(void* data, std::size_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {
    if (!release_) release_ = [] {};
}

Storage::Storage(std::size_t bytes, Device device, ShardProvider& provider)
    : bytes_(bytes), device_(device), is_provided_(true), release_([] {}), provider_(&provider) {}

Storage::~Storage() {
    if (release_) {
        release_();
        return;
    }
#if AXLE_CUDA
    if (pinned_) cuda::pinned_memory::deallocate(data_);
    if (device_.is_cuda()) cuda::device_memory::deallocate(device_.index, data_);
#endif
    if (device_.is_cpu() && !pinned_) host_memory::deallocate(data_, at_least_one(bytes_));
}

void Storage::record_stream([[maybe_unused]] int device) const {
#if AXLE_CUDA
    if (memory_ != nullptr) memory_->record_stream(device);
    if (release_) return;
    cudaStream_t stream = cuda::context(device).stream();
    if (pinned_) cuda::pinned_memory::record_stream(data_, stream);
    if (device_.is_cuda()) cuda::device_memory::record_stream(device_.index, data_, stream);
#endif
}

void Storage::set_memory(std::shared_ptr<Storage> memory) {
    data_ = memory == nullptr ? nullptr : memory->data();
    memory_ = std::move(memory);
}

void Storage::provide() const {
    if (provider_ == nullptr)
        throw UsageError(
            "storage: the elements of this tensor were sharded over processes, and the object that "
            "gathers them was destroyed; keep the Accelerator alive while its models are used");
    provider_->provide(const_cast<Storage&>(*this));  // NOLINT: the elements do not change
}

}  // namespace axle
