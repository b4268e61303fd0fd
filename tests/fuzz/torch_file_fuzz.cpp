// load_torch_file.
#include "core/files/torch_file.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

// Reads every element.
void touch(const Tree& tree, std::size_t most) {
    for_each_tensor(tree, [&](const Tensor& x) {
        const Tensor copy = contiguous(x);
        require(bytes_of(copy).size() <= most, "no tensor takes more than the file has");
        require_same(x.clone(), copy);
    });
}

void fuzz(Bytes input) {
    const MemoryFile file(input);
    Tree whole, unchecked;
    if (Tree known; takes([&] {
            known = load_torch_file(file.path(), {.check_crc = false, .unknown_as_null = true});
        }))
        touch(known, input.size());
    // Few inputs have the checksums of what they hold.
    if (!takes([&] { unchecked = load_torch_file(file.path(), {.check_crc = false}); })) return;
    touch(unchecked, input.size());
    if (!takes([&] { whole = load_torch_file(file.path()); })) return;
    require(whole.kind() == unchecked.kind(), "checksums change nothing else");
}

}  // namespace axle::tests
