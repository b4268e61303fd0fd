#include "data/files/cifar.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include "core/files/file.h"
#include "core/ops.h"
#include "data/files/bytes.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::int64_t kPixels = 3 * 32 * 32;

// One of the label bytes at the start of a record.
struct Label {
    const char* name;
    std::int64_t classes;
};
using Format = std::span<const Label>;
constexpr Label kCifar10[] = {{"label", 10}};
constexpr Label kCifar100[] = {{"coarse_label", 20}, {"label", 100}};

struct File {
    std::span<const std::byte> bytes;
    std::string name;
};

std::int64_t record_bytes(Format format) { return std::ssize(format) + kPixels; }

std::int64_t count_records(const File& file, Format format) {
    const std::int64_t record = record_bytes(format), size = std::ssize(file.bytes);
    if (size == 0) throw_at_byte(file.name, 0, "the file is empty");
    if (size % record != 0)
        throw_at_byte(file.name, size / record * record,
                      str("the size is not a multiple of the record size: ", size, " bytes, ",
                          record, " per record"));
    return size / record;
}

// Returns the records of all files, in order, as one batch.
Tree read_records(std::span<const File> files, Format format) {
    std::int64_t count = 0;
    for (const File& file : files) count += count_records(file, format);
    Tensor images = empty({count, 3, 32, 32}, {.dtype = u8});
    Tree batch{{"image", images}};
    std::vector<std::int64_t*> labels;
    for (const Label& label : format) {
        Tensor values = empty({count}, {.dtype = i64});
        labels.push_back(values.data<std::int64_t>());
        batch.set(label.name, values);
    }
    std::byte* pixels = bytes_of(images).data();
    for (const File& file : files) {
        const std::byte* at = file.bytes.data();
        const std::byte* const end = at + file.bytes.size();
        while (at != end) {
            for (std::size_t l = 0; l < format.size(); ++l, ++at) {
                const auto value = std::to_integer<std::int64_t>(*at);
                if (value >= format[l].classes)
                    throw_at_byte(file.name, at - file.bytes.data(),
                                  str(format[l].name, " must be at most ", format[l].classes - 1,
                                      ": ", value));
                *labels[l]++ = value;
            }
            std::memcpy(pixels, at, kPixels);
            at += kPixels;
            pixels += kPixels;
        }
    }
    return batch;
}

TensorDataset read_folder(const std::string& folder, const std::vector<std::string>& names,
                          Format format) {
    std::vector<MappedFile> mapped;
    std::vector<File> files;
    for (const std::string& name : names) {
        const std::string path = (std::filesystem::path(folder) / name).string();
        files.push_back({mapped.emplace_back(path).bytes(), path});
    }
    return TensorDataset(read_records(files, format));
}

}  // namespace

TensorDataset cifar10(const std::string& folder, bool train) {
    if (!train) return read_folder(folder, {"test_batch.bin"}, kCifar10);
    return read_folder(folder,
                       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                        "data_batch_4.bin", "data_batch_5.bin"},
                       kCifar10);
}

TensorDataset cifar100(const std::string& folder, bool train) {
    return read_folder(folder, {train ? "train.bin" : "test.bin"}, kCifar100);
}

Tree parse_cifar10(std::span<const std::byte> bytes, const std::string& name) {
    const File file{bytes, name};
    return read_records({&file, 1}, kCifar10);
}

Tree parse_cifar100(std::span<const std::byte> bytes, const std::string& name) {
    const File file{bytes, name};
    return read_records({&file, 1}, kCifar100);
}

}  // namespace axle::data
