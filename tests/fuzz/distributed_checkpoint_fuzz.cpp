// Fuzzes DistributedCheckpoint. An input is the length of .metadata in four bytes, .metadata, and
// the file __0_0.distcp.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/files/distributed_checkpoint.h"
#include "core/ops.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    std::uint32_t length = 0;
    if (input.size() < sizeof length) return;
    std::memcpy(&length, input.data(), sizeof length);
    input = input.subspan(sizeof length);
    const Bytes metadata = input.first(std::min<std::size_t>(length, input.size()));
    const Bytes chunks = input.subspan(metadata.size());
    memory_file("dcp/__0_0.distcp", chunks);
    const std::string folder =
        std::filesystem::path(memory_file("dcp/.metadata", metadata)).parent_path().string();
    std::optional<DistributedCheckpoint> checkpoint;
    if (!accepts([&] { checkpoint.emplace(folder); })) return;
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : checkpoint->tensors()) {
        const std::int64_t count = numel(tensor.shape);
        bytes += static_cast<std::size_t>(count * size_of(tensor.dtype));
        require(bytes <= chunks.size(), "tensors are not larger than the files");
        Tensor whole, part;
        if (!accepts([&] { whole = checkpoint->read(name); })) continue;
        require(whole.dtype() == tensor.dtype && whole.shape() == tensor.shape,
                "a tensor has the dtype and shape of the metadata");
        part = checkpoint->read(name, count / 3, count / 3);
        require_same(part, contiguous(whole.reshape({-1}).narrow(0, count / 3, count / 3)));
    }
    for (const auto& [name, value] : checkpoint->values())
        accepts([&, &key = name] { checkpoint->read_value(key); });
    accepts([&] { checkpoint->names_in_state(); });
}

}  // namespace axle::tests
