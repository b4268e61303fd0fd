// Private to core: the names of functions and classes in files of torch.save.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/dtype.h"

namespace axle {
namespace torch_names {

inline constexpr std::string_view kSize = "torch.Size";
inline constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";
// The functions that create a tensor from a typed storage and from an untyped storage, and the
// class of untyped storages.
inline constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2";
inline constexpr std::string_view kTensorOfBytes = "torch._utils._rebuild_tensor_v3";
inline constexpr std::string_view kBytes = "torch.storage.UntypedStorage";
// The function that creates a tensor with attributes, and the types of such tensors. Full state
// dicts of FSDP contain them.
inline constexpr std::string_view kFromType = "torch._tensor._rebuild_from_type_v2";
inline constexpr std::string_view kTensorType = "torch.Tensor";
inline constexpr std::string_view kParameterType = "torch.nn.parameter.Parameter";

}  // namespace torch_names

// Returns the dtype of a storage class such as "torch.FloatStorage", or nullopt for another name.
std::optional<DType> dtype_of_torch_storage(std::string_view name);
// Returns whether load_torch_file() supports the name. Returns false for collections.OrderedDict,
// which read_pickle() handles.
bool is_torch_name(std::string_view name);

}  // namespace axle
