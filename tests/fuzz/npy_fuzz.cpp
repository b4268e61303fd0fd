// Fuzzes parse_npy() and save_npy().
#include "data/files/npy.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    Tensor x;
    if (!accepts([&] { x = data::parse_npy(input, kHostileName); })) return;
    data::save_npy(output_path(), x);
    require_same(data::load_npy(output_path()), x);
}

}  // namespace axle::tests
