// Fuzzes SafetensorsFile and save_safetensors().
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    const MemoryFile file(input);
    Safetensors all;
    if (!accepts([&] { all = load_safetensors(file.path()); })) return;
    const SafetensorsFile opened(file.path());
    std::size_t bytes = 0;
    for (const auto& [name, x] : all.tensors) {
        require_same(opened.mapped_tensor(name), x);
        bytes += bytes_of(x).size();
    }
    require(bytes < input.size(), "tensors are not larger than the file");
    save_safetensors(output_path(), all.tensors, all.metadata);
    const Safetensors again = load_safetensors(output_path());
    require(again.metadata == all.metadata, "metadata are restored");
    require(again.tensors.size() == all.tensors.size(), "all tensors are restored");
    for (const auto& [name, x] : all.tensors) require_same(again.tensors.at(name), x);
    const std::string first = read_file(output_path());
    save_safetensors(output_path(), again.tensors, again.metadata);
    require(read_file(output_path()) == first, "equal tensors give equal files");
}

}  // namespace axle::tests
