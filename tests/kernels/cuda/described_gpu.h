// A description of a GPU for which cuDNN creates plans without a device. The plans cannot run, but
// their creation succeeds only if cuDNN supports the operation.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/error.h"

namespace axle::kernels::cudnn {

// The properties of an H200.
inline constexpr std::string_view kProperties = R"({
    "deviceVer": 900, "driverVer": 13000, "deviceName": "NVIDIA H200",
    "cudaDeviceId": 0, "pciDeviceId": 0, "multiProcessorCount": 132, "warpSize": 32,
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "totalGlobalMem": 150000000000,
    "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560,
    "isTccDriver": 0, "supportCoopLaunch": 1})";

// A fixture that creates the description, and skips tests if cuDNN is missing or does not support
// descriptions of GPUs.
class DescribedGpu : public testing::Test {
  protected:
    void SetUp() override try {
        if (functions() == nullptr) GTEST_SKIP() << "libcudnn.so.9 is missing";
        std::string properties(kProperties);
        properties.insert(1, str("\"cudnnVersion\": ", version(), ","));
        device_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
        device_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     static_cast<std::int64_t>(properties.size()), properties.data());
        device_->finalize();
    } catch (const UnsupportedGraph&) {
        // cuDNN 9.11 introduced descriptions. Later versions can require other contents.
        GTEST_SKIP() << "cuDNN " << version() << " does not accept this description of a device";
    }

    // Returns the workspace in bytes, or nullopt if cuDNN has no plan.
    std::optional<std::int64_t> workspace(Graph graph, const Limits& limits) const {
        try {
            return Plan(std::move(graph), {nullptr, &*device_}, limits).workspace();
        } catch (const UnsupportedGraph&) {
            return std::nullopt;
        }
    }

    std::optional<Descriptor> device_;
};

}  // namespace axle::kernels::cudnn
