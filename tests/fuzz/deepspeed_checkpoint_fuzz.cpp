// Fuzzes DeepSpeedCheckpoint with the files of one process. An input consists of the stage ('2' or
// '3'), the length of the file of model states in four bytes, the file of model states, and the
// file of optimizer states.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "dist/sharding/deepspeed_checkpoint.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    std::uint32_t length = 0;
    if (input.size() < 1 + sizeof length) return;
    const bool is_stage_3 = input[0] == std::byte{'3'};
    std::memcpy(&length, input.data() + 1, sizeof length);
    input = input.subspan(1 + sizeof length);
    const Bytes model = input.first(std::min<std::size_t>(length, input.size()));
    const Bytes optimizer = input.subspan(model.size());
    const std::string folder = is_stage_3 ? "stage3/" : "stage2/";
    const std::string rank = "zero_pp_rank_0_mp_rank_00";
    memory_file(folder + (is_stage_3 ? rank : "mp_rank_00") + "_model_states.pt", model);
    const std::string path =
        std::filesystem::path(memory_file(folder + rank + "_optim_states.pt", optimizer))
            .parent_path()
            .string();
    accepts([&] { const dist::DeepSpeedCheckpoint checkpoint(path); });
    // Few inputs have correct checksums, so weights are read without checking them.
    std::optional<dist::DeepSpeedCheckpoint> checkpoint;
    if (!accepts([&] { checkpoint.emplace(path, TorchFileOptions{.check_crc = false}); })) return;
    for (const auto& [name, weight] : checkpoint->weights()) {
        Tensor values;
        if (!accepts([&, &key = name] { values = checkpoint->read(key); })) continue;
        require(values.dtype() == weight.dtype() && values.shape() == weight.shape(),
                "a weight has the dtype and shape of its description");
        require(static_cast<std::size_t>(values.numel()) <= model.size() + optimizer.size(),
                "weights are not larger than the files");
    }
}

}  // namespace axle::tests
