// parse_cifar10 and parse_cifar100.
#include <string>
#include <vector>

#include "data/files/cifar.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

// The file that this batch was read from; labels in the order of their bytes.
std::string written(const Tree& batch, const std::vector<const char*>& labels) {
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
    if (takes([&] { batch = data::parse_cifar10(input, kHostileName); }))
        require(written(batch, {"label"}) == text_of(input), "CIFAR-10 is taken whole");
    if (takes([&] { batch = data::parse_cifar100(input, kHostileName); }))
        require(written(batch, {"coarse_label", "label"}) == text_of(input),
                "CIFAR-100 is taken whole");
}

}  // namespace axle::tests
