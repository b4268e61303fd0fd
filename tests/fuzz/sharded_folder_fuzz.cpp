// Fuzzes ShardedFolder. An input is the length of index.json in four bytes, index.json, and the
// file rank_00000.safetensors.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/files/sharded_folder.h"
#include "core/ops.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    std::uint32_t length = 0;
    if (input.size() < sizeof length) return;
    std::memcpy(&length, input.data(), sizeof length);
    input = input.subspan(sizeof length);
    const Bytes index = input.first(std::min<std::size_t>(length, input.size()));
    memory_file("sharded/rank_00000.safetensors", input.subspan(index.size()));
    const std::string folder =
        std::filesystem::path(memory_file("sharded/index.json", index)).parent_path().string();
    std::optional<ShardedFolder> sharded;
    if (!accepts([&] { sharded.emplace(folder); })) return;
    for (const auto& [name, entry] : sharded->entries()) {
        const std::int64_t count = numel(entry.shape);
        Tensor whole;
        if (!accepts([&, &key = name] { whole = sharded->read(key); })) continue;
        require(whole.dtype() == entry.dtype && whole.shape() == entry.shape,
                "a tensor has the dtype and shape of the index");
        require_same(sharded->read(name, count / 3, count / 3),
                     contiguous(whole.reshape({-1}).narrow(0, count / 3, count / 3)));
    }
}

}  // namespace axle::tests
