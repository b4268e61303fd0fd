// Decides whether a group uses NCCL.
#include <cuda_runtime_api.h>

#include "core/cuda.h"
#include "dist/cuda/nccl_comm.h"
#include "dist/group/device_engine.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

// Describes the GPU of this process. NCCL identifies a GPU by its bus id, so MIG partitions of one
// GPU are treated as the same GPU.
DeviceDescription describe_device(int device) {
    DeviceDescription device_description;
    device_description.machine = machine_id();
    if (!cuda::is_available()) {
        device_description.error = "there is no usable GPU: " + cuda::why_unavailable();
        return device_description;
    }
    if (device < 0 || device >= cuda::device_count()) {
        device_description.error =
            str("cuda:", device, " does not exist: this process can use ", cuda::device_count(),
                cuda::device_count() == 1 ? " GPU" : " GPUs");
        return device_description;
    }
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess)
        device_description.error = cudaGetErrorString(error);
    else if (nccl() == nullptr)
        device_description.error = nccl_error();
    else
        NcclComm::check(nccl()->get_version(&device_description.version), "ncclGetVersion");
    device_description.gpu =
        str(properties.pciDomainID, ':', properties.pciBusID, ':', properties.pciDeviceID);
    return device_description;
}

}  // namespace

NcclNegotiation negotiate_nccl(Control& control, const std::string& name, int rank, int size,
                               int device, milliseconds timeout) {
    DeviceDescription own;
    try {
        own = describe_device(device);
    } catch (const Error& error) {
        own.error = error.what();
    }
    return compare_devices(control, name, rank, size, own, timeout, NcclComm::make_id);
}

}  // namespace axle::dist
