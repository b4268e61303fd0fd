// Fuzzes load_torch_file().
#include "core/files/torch_file.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

// Reads all elements of the tensors, none of which may have more than max_bytes bytes.
void touch(const Tree& tree, std::size_t max_bytes) {
    for_each_tensor(tree, [&](const Tensor& x) {
        const Tensor copy = contiguous(x);
        require(bytes_of(copy).size() <= max_bytes, "tensors are not larger than the file");
        require_same(x.clone(), copy);
    });
}

void fuzz(Bytes input) {
    const MemoryFile file(input);
    Tree whole, unchecked;
    if (Tree known; accepts([&] {
            known = load_torch_file(file.path(), {.check_crc = false, .unknown_as_null = true});
        }))
        touch(known, input.size());
    // Few inputs have correct checksums, so the fuzzer first loads without checking them.
    if (!accepts([&] { unchecked = load_torch_file(file.path(), {.check_crc = false}); })) return;
    touch(unchecked, input.size());
    if (!accepts([&] { whole = load_torch_file(file.path()); })) return;
    require(whole.kind() == unchecked.kind(), "checksums do not change the result");
}

}  // namespace axle::tests
