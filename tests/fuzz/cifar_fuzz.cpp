// Fuzzes parse_cifar10() and parse_cifar100().
#include <string>
#include <vector>

#include "data/files/cifar.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

// Returns the bytes of a CIFAR file with the samples of a batch. `labels` are the keys of its label
// fields, in the order of the file.
std::string encoded(const Tree& batch, const std::vector<const char*>& labels) {
    const Tensor& images = batch["image"];
    const std::int64_t count = images.shape()[0];
    const std::size_t pixels = 3 * 32 * 32;
    std::string text;
    for (std::int64_t i = 0; i < count; ++i) {
        for (const char* label : labels)
            text += static_cast<char>(batch[label].tensor().data<std::int64_t>()[i]);
        text += text_of(bytes_of(images)).substr(static_cast<std::size_t>(i) * pixels, pixels);
    }
    return text;
}

}  // namespace

void fuzz(Bytes input) {
    Tree batch;
    if (accepts([&] { batch = data::parse_cifar10(input, kHostileName); }))
        require(encoded(batch, {"label"}) == text_of(input), "CIFAR-10 files are read completely");
    if (accepts([&] { batch = data::parse_cifar100(input, kHostileName); }))
        require(encoded(batch, {"coarse_label", "label"}) == text_of(input),
                "CIFAR-100 files are read completely");
}

}  // namespace axle::tests
