// Whether the processes of a group can use NCCL.
#include <cuda_runtime_api.h>

#include "core/cuda.h"
#include "dist/cuda/nccl_comm.h"
#include "dist/group/device_engine.h"
#include "kernels/error.h"

namespace axle::inline v0::dist {
namespace {

using std::chrono::milliseconds;

// The bus is what NCCL tells GPUs apart by: parts of one (MIG) count as the same.
DeviceDescription offer_of(int device) {
    DeviceDescription offer;
    offer.machine = machine_id();
    if (!cuda::is_available()) {
        offer.trouble = "no GPU: " + cuda::why_unavailable();
        return offer;
    }
    if (device < 0 || device >= cuda::device_count()) {
        offer.trouble = str("there is no cuda:", device, " among ", cuda::device_count());
        return offer;
    }
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess)
        offer.trouble = cudaGetErrorString(error);
    else if (nccl() == nullptr)
        offer.trouble = nccl_error();
    else
        NcclComm::check(nccl()->get_version(&offer.version), "ncclGetVersion");
    offer.gpu = str(properties.pciDomainID, ':', properties.pciBusID, ':', properties.pciDeviceID);
    return offer;
}

}  // namespace

NcclNegotiation negotiate_nccl(Control& control, const std::string& name, int rank, int size,
                               int device, milliseconds timeout) {
    DeviceDescription own;
    try {
        own = offer_of(device);
    } catch (const Error& error) {
        own.trouble = error.what();
    }
    return compare_devices(control, name, rank, size, own, timeout, NcclComm::make_id);
}

}  // namespace axle::inline v0::dist
