// Usage: bench_loader --case small64|small512|cifar|images|tokens --workers N --file FILE
//
// Measures passes of a DataLoader for bench/peers/compare --loader. bench/peers/loader.py creates
// the same batches in PyTorch. The samples are created from FILE, which has random bytes:
//
//     small64, small512   rows of 16 f32 and a label, shuffled, 64 or 512 in a batch
//     cifar               128 images of 3 x 32 x 32 bytes, padded, cropped and flipped at
//                         random, converted to f32 and normalized
//     images              32 images of 3 x 224 x 224 bytes, converted to f32 and normalized
//     tokens              the file mapped as u16: 32 shuffled blocks of 256 and their labels
//
// The program replies to each line of its input with a line of JSON:
//
//     (at its start)  {"engine", "batches", "handed_bytes", "moved_bytes", "memory_gbs"}, where
//                     handed_bytes are the bytes of a pass's batches, moved_bytes also include
//                     the data that they are made from, and memory_gbs is the peak rate
//                     of the memory
//     check           runs a pass: {"digest", "means"}, a hash of all numbers except images, and
//                     the means of the images and of their left halves
//     run N           runs N passes: {"ms": [N numbers]}
//     quit
#include "data/loading/loader.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/requests.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "data/files/tokens.h"
#include "data/transforms.h"
#include "kernels/error.h"
#include "tools/axle/bench/machine.h"

namespace axle::bench {
namespace {

struct Case {
    std::shared_ptr<const data::Dataset> dataset;
    std::int64_t batch = 0;
    double source_bytes = 0;  // bytes of the tensors from which a sample is created
};

// Returns the labels 0 to n - 1, so that a label is the index of its row.
Tensor row_numbers(std::int64_t n) {
    Tensor rows = empty({n}, {.dtype = i64});
    for (std::int64_t i = 0; i < n; ++i) rows.data<std::int64_t>()[i] = i;
    return rows;
}

Case small(const std::string& path, std::int64_t batch) {
    constexpr std::int64_t kRows = 200'000, kColumns = 16;
    const data::Tokens words = data::Tokens::open(path);
    Tensor x = empty({kRows, kColumns});
    auto* const to = x.data<float>();
    for (std::int64_t i = 0; i < x.numel(); ++i)
        to[i] = static_cast<float>(words[i % words.size()]) / 65536;
    const Tree rows{{"x", x}, {"y", row_numbers(kRows)}};
    return {std::make_shared<data::TensorDataset>(rows), batch, kColumns * 4 + 8};
}

// Returns images of random bytes that become brighter from left to right, so that a flip changes
// the mean of the left half.
Tensor pictures(const std::string& path, const Shape& shape) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    Tensor images = empty(shape, {.dtype = u8});
    auto* const to = images.data<std::uint8_t>();
    const std::int64_t width = shape[3];
    std::size_t from = 0;
    for (std::int64_t i = 0, n = images.numel(); i < n; ++i) {
        to[i] = static_cast<std::uint8_t>(static_cast<std::int64_t>(bytes[from]) / 2 +
                                          i % width * 127 / width);
        from = from + 1 < bytes.size() ? from + 1 : 0;
    }
    return images;
}

Case transformed(const Tensor& images, std::int64_t batch, data::Transform transform) {
    const Tree samples{{"image", images}, {"label", row_numbers(images.size(0))}};
    return {std::make_shared<data::TransformedDataset>(data::TensorDataset(samples),
                                                       std::move(transform)),
            batch, static_cast<double>(images.numel() / images.size(0)) + 8};
}

Case case_of(const std::string& name, const std::string& path) {
    const data::Normalize normalize({0.49, 0.48, 0.44}, {0.24, 0.25, 0.26});
    if (name == "small64") return small(path, 64);
    if (name == "small512") return small(path, 512);
    if (name == "cifar")
        return transformed(
            pictures(path, {25'600, 3, 32, 32}), 128,
            data::Compose({data::RandomCrop(32, {.padding = 4}), data::RandomHorizontalFlip(),
                           data::ToFloat(), normalize}));
    if (name == "images")
        return transformed(pictures(path, {1024, 3, 224, 224}), 32,
                           data::Compose({data::ToFloat(), normalize}));
    if (name == "tokens")
        return {std::make_shared<data::BlockDataset>(data::Tokens::open(path), 256), 32, 257 * 2};
    throw ValueError("bench_loader: --case must be small64, small512, cifar, images or tokens: " +
                     name);
}

// A 64-bit checksum of the numbers in batches. It depends on the order of the numbers.
class Digest {
  public:
    void add(const Tensor& t) {
        std::uint64_t sum = 0;
        for (std::int64_t i = 0; i < t.numel(); ++i)
            sum += word(t, i) * (2 * static_cast<std::uint64_t>(i) + 1);
        value_ = value_ * 31 + sum;
    }
    std::string text() const { return std::to_string(value_); }

  private:
    static std::uint64_t word(const Tensor& t, std::int64_t i) {
        if (t.dtype() == i64) return static_cast<std::uint64_t>(t.data<std::int64_t>()[i]);
        std::uint32_t bits = 0;
        std::memcpy(&bits, t.data<float>() + i, sizeof bits);
        return bits;
    }

    std::uint64_t value_ = 0;
};

nlohmann::json check(data::DataLoader& loader) {
    Digest digest;
    double all = 0, left = 0, batches = 0;
    for (const Tree& batch : loader) {
        batches += 1;
        for (const auto& [key, value] : batch.entries()) {
            const Tensor& t = value.tensor();
            if (key != "image") {
                digest.add(t);
                continue;
            }
            all += mean(t).item();
            left += mean(t.narrow(-1, 0, t.size(-1) / 2)).item();
        }
    }
    return {{"digest", digest.text()}, {"means", {all / batches, left / batches}}};
}

nlohmann::json run(data::DataLoader& loader, int passes) {
    std::vector<double> ms;
    for (int pass = 0; pass < passes; ++pass) {
        const auto start = Clock::now();
        for ([[maybe_unused]] const Tree& batch : loader) continue;
        ms.push_back(1e3 * seconds_since(start));
    }
    return {{"ms", ms}};
}

nlohmann::json facts(const Case& made, const data::DataLoader& loader, int workers) {
    const auto samples = static_cast<double>(made.dataset->size());
    double handed = 0;
    for_each_tensor(made.dataset->get(0), [&](const Tensor& t) {
        handed += samples * static_cast<double>(t.numel() * size_of(t.dtype()));
    });
    return {{"engine", "axle"},
            {"batches", loader.len()},
            {"handed_bytes", handed},
            {"moved_bytes", handed + samples * made.source_bytes},
            {"memory_gbs", peaks(std::max(workers, 1)).memory}};
}

void serve(const std::string& name, int workers, const std::string& path) {
    const Case made = case_of(name, path);
    data::DataLoader loader(made.dataset,
                            {.batch_size = made.batch, .shuffle = true, .num_workers = workers});
    reply(facts(made, loader, workers));
    answer_requests([&](const std::string& request, int count) -> nlohmann::json {
        if (request == "check") return check(loader);
        if (request == "run") return run(loader, count);
        return nullptr;
    });
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    if (argc % 2 == 0) {  // the last option has no value
        std::cerr
            << "bench_loader: the option must have a value: " << argv[argc - 1]
            << "\nusage: bench_loader --case small64|small512|cifar|images|tokens --workers N "
               "--file FILE\n";
        return 2;
    }
    std::string name, path;
    int workers = 0;
    try {
        for (int i = 1; i + 1 < argc; i += 2) {
            const std::string option = argv[i], value = argv[i + 1];
            if (option == "--case")
                name = value;
            else if (option == "--workers")
                workers = std::stoi(value);
            else if (option == "--file")
                path = value;
            else
                throw std::invalid_argument(
                    "bench_loader: the option must be --case, --workers or --file: " + option);
        }
        axle::bench::serve(name, workers, path);
    } catch (const std::exception& error) {
        axle::bench::reply({{"error", error.what()}});
        return 1;
    }
    return 0;
}
