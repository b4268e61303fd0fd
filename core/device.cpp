#include "core/device.h"

#include <charconv>

#include "kernels/error.h"

namespace axle::inline v0 {

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
    throw DeviceError(str("device: this build has no CUDA: '", text, "'; use cpu"));
}

std::ostream& operator<<(std::ostream& out, Device device) {
    if (device.is_cpu()) return out << "cpu";
    if (device.is_meta()) return out << "meta";
    return out << "cuda:" << device.index;
}

}  // namespace axle::inline v0
