// Fuzzes the reader of model.safetensors.index.json.
#include "core/files/safetensors.h"
#include "core/ops.h"
#include "nn/files/weight_files.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    static const bool has_shard = [] {  // the only file of weights that exists
        save_safetensors(memory_file("weights/a.safetensors", {}),
                         {{"a", ones({2})}, {"b", ones({3})}}, {{"format", "pt"}});
        return true;
    }();
    const std::string path = memory_file("weights/model.safetensors.index.json", input);
    std::size_t count = 0;
    if (!accepts([&] { count = nn::WeightFiles(path).weights().size(); })) return;
    require(has_shard && count <= 2, "an index contains only weights of its files");
}

}  // namespace axle::tests
