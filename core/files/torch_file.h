// Reads PyTorch's checkpoint files as torch.save writes them (.bin, .pt, .pth, .pkl): a zip file
// with a pickle and the bytes of the tensors. The reader executes nothing. It supports tensors,
// parameters, dicts, lists, tuples, numbers, text, booleans, None, torch.Size and dtypes; a file
// with any other name is refused with that name. An inconsistent file throws FileError "path:
// reason" with the name of the entry.
#pragma once

#include <string>

#include "core/tree/tree.h"

namespace axle {

struct TorchFileOptions {
    // Compares the data with the checksums in the file. Turn it off for files that PyTorch wrote
    // without them (torch.serialization.set_crc32_options).
    bool check_crc = true;
    // Reads values of unsupported types as null instead of throwing.
    bool unknown_as_null = false;
};

// Returns what was saved: dicts become maps, with integer keys converted to text; lists, tuples and
// sizes become lists; a dtype becomes its name, "torch.float32". Tensors are on the CPU, keep their
// shapes and strides, and share memory if they did when saved. Their memory is mapped from the file
// under the conditions of MappedFile (core/files/file.h).
Tree load_torch_file(const std::string& path, TorchFileOptions options = {});

}  // namespace axle
