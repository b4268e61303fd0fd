// PyTorch's own checkpoint files, as torch.save writes them (.bin, .pt, .pth, .pkl): a zip file
// with a pickle and the bytes of the tensors. The reader executes nothing: it knows tensors,
// parameters, dicts, lists, tuples, numbers, text, booleans, None, torch.Size and dtypes; a file
// that names anything else is refused with that name. A file that lies is a FileError "path:
// reason" that names the entry.
#pragma once

#include <string>

#include "core/tree/tree.h"

namespace axle::inline v0 {

struct TorchFileOptions {
    // Whether to compare what is read with the checksums in the file. PyTorch can be told to leave
    // them out (torch.serialization.set_crc32_options).
    bool check_crc = true;
    // What is neither a tensor nor a plain value is null, instead of an error.
    bool leave_out_others = false;
};

// What was saved: dicts are maps, whose keys are text or integers, these as text; lists, tuples and
// sizes are lists; a dtype is its name, "torch.float32". Tensors are on the CPU, of their shapes
// and strides, and share memory where they did. It is mapped from the file and private to this
// process, under the conditions that core/files/file.h states for mapped files.
Tree load_torch_file(const std::string& path, TorchFileOptions options = {});

}  // namespace axle::inline v0
