#include "kernels/exec.h"

#include <cstring>

#include <cuda_runtime_api.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/trouble_box.h"

namespace axle::inline v0::kernels {

void throw_cuda_error(cudaError_t error, const char* what, std::source_location at) {
    cudaGetLastError();  // forgotten, unless the context is beyond repair
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

}  // namespace

Cuda::Cuda(int device, CUstream_st* stream, Memory memory)
    : device_(device), stream_(stream), memory_(memory) {
    if (memory_.allocate == nullptr) memory_ = {from_driver, to_driver};
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess || device < 0 || device >= count)
        throw DeviceError(str("cuda: no device ", device, ": ",
                              found != cudaSuccess ? cudaGetErrorString(found)
                                                   : str("this machine has ", count).c_str()));
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
}

Cuda::~Cuda() {
    if (box_ == nullptr) return;
    cudaFree(box_->taken);
    cudaFreeHost(box_->record);
    delete box_;
}

Cuda::TroubleBox* Cuda::trouble_box() {
    if (box_ != nullptr) return box_;
    auto box = std::make_unique<TroubleBox>();
    void* record = nullptr;
    check_cuda(cudaHostAlloc(&record, sizeof(DeviceTrouble), cudaHostAllocMapped), "cudaHostAlloc");
    box->record = new (record) DeviceTrouble;
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&box->taken), sizeof(unsigned)), "cudaMalloc");
    check_cuda(cudaMemset(box->taken, 0, sizeof(unsigned)), "cudaMemset");
    box_ = box.release();
    return box_;
}

DeviceTrouble Cuda::take_trouble() {
    if (box_ == nullptr) return {};
    const auto kind = *const_cast<volatile DeviceTrouble::Kind*>(&box_->record->kind);
    if (kind == DeviceTrouble::none) return {};
    const DeviceTrouble trouble = *box_->record;
    *box_->record = {};
    check_cuda(cudaMemsetAsync(box_->taken, 0, sizeof(unsigned), stream_), "cudaMemsetAsync");
    return trouble;
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

}  // namespace axle::inline v0::kernels
