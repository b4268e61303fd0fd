#include "core/files/torch_names.h"

#include <map>
#include <string>
#include <utility>

#include "core/files/torch_file.h"
#include "kernels/error.h"

namespace axle {
namespace {

constexpr std::pair<std::string_view, DType> kStorages[] = {
    {"torch.DoubleStorage", DType::f64},       {"torch.FloatStorage", DType::f32},
    {"torch.HalfStorage", DType::f16},         {"torch.BFloat16Storage", DType::bf16},
    {"torch.LongStorage", DType::i64},         {"torch.IntStorage", DType::i32},
    {"torch.ShortStorage", DType::i16},        {"torch.CharStorage", DType::i8},
    {"torch.ByteStorage", DType::u8},          {"torch.BoolStorage", DType::boolean},
    {"torch.ComplexFloatStorage", DType::c64},
};

}  // namespace

std::optional<DType> dtype_of_torch_storage(std::string_view name) {
    for (const auto& [known, dtype] : kStorages)
        if (name == known) return dtype;
    return std::nullopt;
}

bool is_torch_name(std::string_view name) {
    using namespace torch_names;
    return name == kSize || name == kParameter || name == kTensor || name == kTensorOfBytes ||
           name == kBytes || name == kFromType || name == kTensorType || name == kParameterType ||
           dtype_of_torch_storage(name) || dtype_of_torch_name(name);
}

std::optional<DType> dtype_of_torch_name(std::string_view name) {
    static const auto* known = [] {
        auto* names = new std::map<std::string, DType, std::less<>>;
        for (int i = 0; i <= static_cast<int>(DType::c64); ++i)
            names->emplace(str("torch.", static_cast<DType>(i)), static_cast<DType>(i));
        return names;
    }();
    const auto found = known->find(name);
    return found == known->end() ? std::nullopt : std::optional(found->second);
}

}  // namespace axle
