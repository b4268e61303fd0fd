// Reads PyTorch's checkpoint files as torch.save writes them (.bin, .pt, .pth, .pkl): a zip file
// with a pickle and the bytes of the tensors. The reader executes no code of the file. It supports
// tensors, parameters, dicts, lists, tuples, numbers, text, booleans, None, torch.Size and dtypes.
// A file that is inconsistent, or that contains any other type, throws FileError "path: reason"
// with the name of the entry or type.
//
// Limits: the pickle and the directory of the zip file have at most 100 MB each. The values need at
// most 64 MiB of memory plus 64 bytes per byte of the pickle's first 4 MiB and 8 bytes per further
// byte. This does not include the data of tensors. A value that the pickle refers to several times
// counts each time, because a Tree has no shared parts. Files that exceed a limit throw FileError.
// The time is proportional to the size of the file and of the result, except for sorting the names
// of entries and the keys of dicts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/tree/tree.h"

namespace axle {

struct TorchFileOptions {
    // If true, compares the data with the checksums in the file. Set it to false for files that
    // PyTorch wrote without checksums (torch.serialization.set_crc32_options).
    bool check_crc = true;
    // If true, values of unsupported types become null instead of throwing FileError.
    bool unknown_as_null = false;
};

// Returns the saved value. Dicts become maps, with integer keys converted to text. Lists, tuples
// and sizes become lists. A dtype becomes its name, such as "torch.float32". Tensors are on the CPU
// with their saved shapes and strides; they share memory if they did when they were saved. Their
// memory is mapped from the file (see MappedFile in core/files/file.h for its conditions); data
// that are misaligned in the file are copied.
Tree load_torch_file(const std::string& path, TorchFileOptions options = {});
// Returns the value in the bytes of a file. Tensors share the memory of the bytes, which `owner`
// keeps valid; data that are misaligned are copied. Errors have no path.
Tree load_torch_file(std::span<std::byte> bytes, std::shared_ptr<const void> owner,
                     TorchFileOptions options = {});

// Returns the dtype with a name such as "torch.float32", or nullopt for another name.
std::optional<DType> dtype_of_torch_name(std::string_view name);

}  // namespace axle
