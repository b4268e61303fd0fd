// Device: the CPU, a GPU or the meta device.
#pragma once

#include <ostream>
#include <string_view>

namespace axle {

struct Device {
    enum class Type : unsigned char { cpu, cuda, meta };

    Type type = Type::cpu;
    int index = 0;  // of the GPU; 0 for the other types

    static constexpr Device cpu() { return {Type::cpu, 0}; }
    static constexpr Device cuda(int index = 0) { return {Type::cuda, index}; }
    // Returns the meta device, whose tensors have a shape and a dtype but no memory. Ops on these
    // tensors check their arguments but compute nothing.
    static constexpr Device meta() { return {Type::meta, 0}; }
    // Parses "cpu", "cuda" (GPU 0), "cuda:N" or "meta". Throws ValueError for any other text, and
    // DeviceError if this build does not support the device or this machine does not have it.
    static Device parse(std::string_view text);

    bool is_cpu() const { return type == Type::cpu; }
    bool is_cuda() const { return type == Type::cuda; }
    bool is_meta() const { return type == Type::meta; }
    friend bool operator==(const Device&, const Device&) = default;
};

std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace axle
