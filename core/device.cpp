#include "core/device.h"

#include <charconv>

#include "core/cuda.h"
#include "core/cuda/graph.h"
#include "kernels/error.h"

namespace axle {

Device Device::parse(std::string_view text) {
    if (text == "cpu") return cpu();
    if (text == "meta") return meta();
    int index = 0;
    bool is_gpu = text == "cuda";
    if (text.starts_with("cuda:")) {
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data() + 5, end, index);
        is_gpu = error == std::errc() && stop == end && index >= 0;
    }
    if (!is_gpu) throw ValueError(str("device: expected cpu, cuda, cuda:N or meta: '", text, "'"));
    if (!axle::cuda::is_available())
        throw DeviceError(
            str("device: ", axle::cuda::why_unavailable(), ": '", text, "'; use cpu"));
    if (index >= axle::cuda::device_count())
        throw DeviceError(str("device: the GPU does not exist: '", text, "'; this process can use ",
                              axle::cuda::device_count(),
                              axle::cuda::device_count() == 1 ? " GPU" : " GPUs"));
    return Device::cuda(index);
}

#if !AXLE_CUDA
namespace cuda {

bool is_available() noexcept { return false; }
int device_count() noexcept { return 0; }
std::string why_unavailable() { return "this build of Axle has no CUDA support"; }
DeviceProperties get_device_properties(int device) {
    throw DeviceError(
        str("get_device_properties: cuda:", device, " is not available: ", why_unavailable()));
}
std::vector<std::pair<std::string, std::string>> find_libraries() { return {}; }
void synchronize(int) {}
MemoryStats memory_stats(int) { return {}; }
void reset_peak_memory_stats(int) {}
void empty_cache(int) {}

}  // namespace cuda

bool is_capturing() { return false; }
std::uint64_t capture_id() { return 0; }
#endif

std::ostream& operator<<(std::ostream& out, Device device) {
    if (device.is_cpu()) return out << "cpu";
    if (device.is_meta()) return out << "meta";
    return out << "cuda:" << device.index;
}

}  // namespace axle
