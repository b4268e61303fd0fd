// Fuzzes load_npz().
#include <map>

#include "data/files/npz.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    constexpr std::int64_t kMaxInflated = 1 << 20;
    const std::string path = memory_file(kHostileName, input);
    std::map<std::string, Tensor> arrays;
    if (!accepts([&] { arrays = data::load_npz(path, {.max_inflated = kMaxInflated}); })) return;
    std::int64_t bytes = 0;
    for (const auto& [name, array] : arrays) {
        bytes += array.numel() * size_of(array.dtype());
        const auto again = data::load_npz(path, {.names = {name}, .max_inflated = kMaxInflated});
        require(again.size() == 1, "one name selects one array");
        require_same(again.at(name), array);  // also detects bytes that were not written
    }
    require(bytes <= std::ssize(input) + kMaxInflated, "arrays are not larger than the limits");
}

}  // namespace axle::tests
