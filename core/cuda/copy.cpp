#include "core/cuda/copy.h"

#include "core/cuda.h"
#include "core/cuda/context.h"
#include "kernels/cuda/check.h"

namespace axle::cuda {

using kernels::check_cuda;

namespace {

void to_gpu(const Tensor& x, Tensor& y, std::size_t bytes, bool non_blocking) {
    kernels::Cuda& on = context(y.device().index);
    // A copy from CPU memory cannot be captured, because each replay would read the contents of
    // this memory at the time of the replay.
    if (is_capturing(on.stream()))
        throw UsageError(str(kernels::current_op,
                             ": reads the CPU's memory, which is not allowed during a graph "
                             "capture; copy it to the GPU before the step"));
    check_cuda(
        cudaMemcpyAsync(y.raw_data(), x.raw_data(), bytes, cudaMemcpyHostToDevice, on.stream()),
        "cudaMemcpyAsync");
    if (!x.impl()->storage->is_pinned()) return;  // the driver has already read pageable memory
    if (non_blocking)
        x.impl()->storage->record_stream(y.device().index);
    else
        wait_for(on);
}

void to_cpu(const Tensor& x, Tensor& y, std::size_t bytes) {
    kernels::Cuda& on = context(x.device().index);
    check_not_capturing(kernels::current_op, on.stream());
    check_cuda(
        cudaMemcpyAsync(y.raw_data(), x.raw_data(), bytes, cudaMemcpyDeviceToHost, on.stream()),
        "cudaMemcpyAsync");
    wait_for(on);
}

// Copies x to y on another GPU. The copy runs on the receiver's stream, which first waits for the
// sender's stream. Then the sender's stream waits for the copy, so that x's memory is not reused
// before the copy has read it.
void to_other_gpu(const Tensor& x, Tensor& y, std::size_t bytes) {
    const int from = x.device().index, to = y.device().index;
    const Event ready, copied;
    set_device(from);
    ready.record(current_stream(from));
    kernels::Cuda& on = context(to);
    ready.wait(current_stream(to));
    check_cuda(cudaMemcpyPeerAsync(y.raw_data(), to, x.raw_data(), from, bytes, on.stream()),
               "cudaMemcpyPeerAsync");
    copied.record(current_stream(to));
    copied.wait(current_stream(from));
}

}  // namespace

void move_elements(const Tensor& x, Tensor& y, bool non_blocking) {
    const auto bytes = static_cast<std::size_t>(x.numel() * size_of(x.dtype()));
    if (bytes == 0) return;
    if (x.device().is_cpu())
        to_gpu(x, y, bytes, non_blocking);
    else if (y.device().is_cpu())
        to_cpu(x, y, bytes);
    else
        to_other_gpu(x, y, bytes);
}

}  // namespace axle::cuda
