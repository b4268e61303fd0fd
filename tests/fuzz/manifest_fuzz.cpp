// Fuzzes the reader of a checkpoint's manifest.json.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include <zlib.h>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

// Returns the input with its checksum corrected, because the fuzzer does not find correct
// checksums. Returns the input itself if it is not a JSON map.
std::string with_checksum(std::string_view input) {
    Tree manifest;
    if (!accepts([&] { manifest = from_json(input); }) || !manifest.is_map())
        return std::string(input);
    std::erase_if(manifest.entries(), [](const auto& entry) { return entry.key == "crc32"; });
    const std::string text = to_json(manifest);
    manifest.set("crc32", static_cast<std::int64_t>(crc32_z(
                              0, reinterpret_cast<const Bytef*>(text.data()), text.size())));
    return to_json(manifest);
}

}  // namespace

void fuzz(Bytes input) {
    memory_file("checkpoint/a.json", bytes_of("{}\n"));
    for (const std::string& text : {std::string(text_of(input)), with_checksum(text_of(input))}) {
        const std::string manifest = memory_file("checkpoint/manifest.json", bytes_of(text));
        const std::string path = std::filesystem::path(manifest).parent_path().string();
        accepts([&] {
            const accel::CheckpointReader reader(path);
            require(accel::is_checkpoint(path), "a checkpoint that can be read is recognized");
            if (reader.contains("a.json"))
                require(reader.read("a").is_map(), "files of the manifest can be read");
        });
        accepts([&] { accel::list_checkpoints(path + "/.."); });
    }
}

}  // namespace axle::tests
