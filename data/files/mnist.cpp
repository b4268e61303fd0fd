#include "data/files/mnist.h"

#include <filesystem>

#include "core/files/file.h"
#include "core/ops.h"
#include "data/files/bytes.h"
#include "data/files/idx.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::int64_t kSide = 28, kClasses = 10;
constexpr std::int64_t kLabelsHeader = 8;  // bytes before the first label: magic number and size

std::string find_file(const std::string& folder, const std::string& name) {
    const std::string plain = (std::filesystem::path(folder) / name).string();
    std::error_code ignored;
    for (const std::string& path : {plain, plain + ".gz"})
        if (std::filesystem::exists(path, ignored)) return path;
    throw FileError(str(printable(folder), ": neither ", name, " nor ", name, ".gz exists"));
}

Tensor read_images(const std::string& path) {
    const Tensor images = read_idx(path);
    if (images.dtype() != u8 || images.dim() != 3 || images.size(1) != kSide ||
        images.size(2) != kSide)
        throw FileError(str(printable(path), ": byte 0: expected uint8 images of 28 x 28, not ",
                            images.dtype(), " ", images.shape()));
    return images.unsqueeze(1);
}

Tensor read_labels(const std::string& path) {
    const Tensor labels = read_idx(path);
    if (labels.dtype() != u8 || labels.dim() != 1)
        throw FileError(str(printable(path), ": byte 0: expected a 1-d array of uint8 labels, not ",
                            labels.dtype(), " ", labels.shape()));
    const auto* label = labels.data<std::uint8_t>();
    for (std::int64_t i = 0; i < labels.numel(); ++i)
        if (label[i] >= kClasses)
            throw_at_byte(path, kLabelsHeader + i,
                          str("label must be at most ", kClasses - 1, ": ", int{label[i]}));
    return labels.to(i64);
}

}  // namespace

TensorDataset mnist(const std::string& folder, bool train) {
    const std::string part = train ? "train" : "t10k";
    const std::string images_path = find_file(folder, part + "-images-idx3-ubyte");
    const std::string labels_path = find_file(folder, part + "-labels-idx1-ubyte");
    const Tensor images = read_images(images_path);
    const Tensor labels = read_labels(labels_path);
    if (images.size(0) != labels.size(0))
        throw FileError(str(
            printable(labels_path), ": byte 4: the number of labels must be the number of images: ",
            labels.size(0), " labels, ", images.size(0), " images in ", printable(images_path)));
    return TensorDataset(Tree{{"image", images}, {"label", labels}});
}

}  // namespace axle::data
