// Where a tensor lives.
#pragma once

#include <ostream>
#include <string_view>

namespace axle::inline v0 {

struct Device {
    enum class Type : unsigned char { cpu, cuda, meta };

    Type type = Type::cpu;
    int index = 0;

    static constexpr Device cpu() { return {Type::cpu, 0}; }
    static constexpr Device cuda(int index = 0) { return {Type::cuda, index}; }
    // Shapes and dtypes without memory: operations check, but nothing is computed.
    static constexpr Device meta() { return {Type::meta, 0}; }
    // "cpu", "cuda", "cuda:1", "meta". Throws ValueError for another text, DeviceError for a device
    // that this build or this machine lacks.
    static Device parse(std::string_view text);

    bool is_cpu() const { return type == Type::cpu; }
    bool is_cuda() const { return type == Type::cuda; }
    bool is_meta() const { return type == Type::meta; }
    friend bool operator==(const Device&, const Device&) = default;
};

std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace axle::inline v0
