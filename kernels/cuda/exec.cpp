#include "kernels/exec.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include <cuda_runtime_api.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/error_slot.h"
#include "kernels/cuda/relaxed.h"

namespace axle::kernels {

void throw_cuda_error(cudaError_t error, const char* what, std::source_location at) {
    cudaGetLastError();  // clears the error if it is not permanent
    throw CudaError(str(current_op, ": ", what, " failed: ", cudaGetErrorName(error), ": ",
                        cudaGetErrorString(error), ", at ", at.file_name(), ":", at.line()));
}

namespace {

void* from_driver(Cuda& on, std::size_t size) {
    void* block = nullptr;
    check_cuda(cudaMallocAsync(&block, size, on.stream()), "cudaMallocAsync");
    return block;
}

void to_driver(Cuda& on, void* block, std::size_t) noexcept { cudaFreeAsync(block, on.stream()); }

// Returns whether code that was compiled for an architecture runs on a GPU. Code for an
// architecture without a suffix also runs on later GPUs of the same generation; code for an
// architecture with a suffix runs on that architecture only.
bool runs_on(std::string_view arch, int major, int minor) {
    const bool exact = !arch.empty() && !(arch.back() >= '0' && arch.back() <= '9');
    if (exact) arch.remove_suffix(1);
    int number = 0;
    for (const char digit : arch) number = 10 * number + (digit - '0');
    return number / 10 == major && (exact ? number % 10 == minor : number % 10 <= minor);
}

// Throws DeviceError if the kernels of this build cannot run on the device. A build contains
// machine code only for the architectures that were selected for it.
void check_architecture(int device) {
    int major = 0, minor = 0;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
               "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
               "cudaDeviceGetAttribute");
    std::string_view rest = AXLE_CUDA_ARCHS;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(' '), rest.size());
        if (runs_on(rest.substr(0, end), major, minor)) return;
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    throw DeviceError(str(
        "cuda:", device, ": this build of Axle does not support compute capability ", major, ".",
        minor, ", only ", AXLE_CUDA_ARCHS, "; configure with -DAXLE_CUDA_ARCHS=", major, minor));
}

}  // namespace

Cuda::Cuda(int device, CUstream_st* stream, Memory memory)
    : device_(device), stream_(stream), memory_(memory) {
    if (memory_.allocate == nullptr) memory_ = {from_driver, to_driver};
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess || device < 0 || device >= count)
        throw DeviceError(str(
            "cuda:", device, ": the device does not exist: ",
            found != cudaSuccess ? cudaGetErrorString(found)
                                 : str("this process can use ", count,
                                       count == 1 ? " GPU" : " GPUs", " (see CUDA_VISIBLE_DEVICES)")
                                       .c_str()));
    check_architecture(device);
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
}

Cuda::~Cuda() {
    if (error_slot_ == nullptr) return;
    cudaFree(error_slot_->taken);
    cudaFreeHost(error_slot_->record);
    delete error_slot_;
}

Cuda::ErrorSlot* Cuda::error_slot() {
    if (error_slot_ != nullptr) return error_slot_;
    const RelaxedCaptureScope relaxed;
    auto box = std::make_unique<ErrorSlot>();
    void* record = nullptr;
    check_cuda(cudaHostAlloc(&record, sizeof(DeviceErrorRecord), cudaHostAllocMapped),
               "cudaHostAlloc");
    box->record = new (record) DeviceErrorRecord;
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&box->taken), sizeof(unsigned)), "cudaMalloc");
    // cudaMemset is queued on the legacy stream, which is not synchronized with the other streams.
    check_cuda(cudaMemset(box->taken, 0, sizeof(unsigned)), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    error_slot_ = box.release();
    return error_slot_;
}

DeviceErrorRecord Cuda::take_error() {
    if (error_slot_ == nullptr) return {};
    const auto kind = *const_cast<volatile DeviceErrorRecord::Kind*>(&error_slot_->record->kind);
    if (kind == DeviceErrorRecord::none) return {};
    std::atomic_thread_fence(std::memory_order_acquire);
    const DeviceErrorRecord error = *error_slot_->record;
    *error_slot_->record = {};
    check_cuda(cudaMemsetAsync(error_slot_->taken, 0, sizeof(unsigned), stream_),
               "cudaMemsetAsync");
    return error;
}

void* DeviceScratch::bytes(std::size_t size) {
    if (size == 0) size = 1;
    blocks_.reserve(blocks_.size() + 1);
    void* const data = on_.memory_.allocate(on_, size);
    blocks_.push_back({data, size});
    return data;
}

DeviceScratch::~DeviceScratch() {
    for (const Block& block : blocks_) on_.memory_.deallocate(on_, block.data, block.size);
}

}  // namespace axle::kernels
