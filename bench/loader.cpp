// Usage: bench_loader --case NAME --workers N --file PATH
//
// Measures passes of a DataLoader for bench/peers/compare --loader. bench/peers/loader.py creates
// the same batches in PyTorch. In the first cases, samples are created from a file of random bytes:
//
//     small64, small512   rows of 16 f32 and a label, shuffled, 64 or 512 in a batch
//     cifar               128 images of 3 x 32 x 32 bytes, padded, cropped and flipped at
//                         random, converted to f32 and normalized
//     images              32 images of 3 x 224 x 224 bytes, converted to f32 and normalized
//     tokens              the file mapped as u16: 32 shuffled blocks of 256 and their labels
//     jpeg_folder         32 images of a folder of JPEG files: decoded, RandomResizedCrop(224),
//                         flipped at random, converted to f32 and normalized
//     csv, json_lines     64 shuffled rows of a file: texts and their labels
//     csv_stream, json_lines_stream
//                         64 rows in the order of two files
//
// The program replies to each line of its input with a line of JSON:
//
//     (at its start)  {"engine", "batches", "handed_bytes", "moved_bytes", "memory_gbs"}, where
//                     handed_bytes are the bytes of a pass's batches, moved_bytes also include
//                     the data that they are made from, and memory_gbs is the peak rate
//                     of the memory
//     check           runs a pass: {"digest", "means"}, a hash of all texts and numbers except
//                     transformed images, and the means of these and of their left halves
//     run N           runs N passes: {"ms": [N numbers]}
//     quit
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/loader_cases.h"
#include "bench/requests.h"
#include "tools/axle/bench/machine.h"

namespace axle::bench {
namespace {

// A 64-bit checksum of the numbers and texts in batches. It depends on their order in a batch.
class Digest {
  public:
    void add(const Tensor& t) {
        add(t.numel(), [&](std::int64_t i) { return word(t, i); });
    }
    // Adds the bytes of a list of texts, with a line end between two texts.
    void add(const Tree::List& texts) {
        std::string all;
        for (const Tree& text : texts) all += (all.empty() ? "" : "\n") + text.string();
        add(std::ssize(all), [&](std::int64_t i) {
            return std::uint64_t{static_cast<unsigned char>(all[static_cast<std::size_t>(i)])};
        });
    }
    // Adds the checksum of a batch. The checksum of a stream does not depend on the order of the
    // batches.
    void add(const Digest& batch, bool is_stream) {
        value_ = value_ * (is_stream ? 1 : 31) + batch.value_;
    }
    std::string text() const { return std::to_string(value_); }

  private:
    template <class Word>
    void add(std::int64_t count, Word&& word) {
        std::uint64_t sum = 0;
        for (std::int64_t i = 0; i < count; ++i)
            sum += word(i) * (2 * static_cast<std::uint64_t>(i) + 1);
        value_ = value_ * 31 + sum;
    }
    static std::uint64_t word(const Tensor& t, std::int64_t i) {
        if (t.dtype() == i64) return static_cast<std::uint64_t>(t.data<std::int64_t>()[i]);
        if (t.dtype() == u8) return t.data<std::uint8_t>()[i];
        std::uint32_t bits = 0;
        std::memcpy(&bits, t.data<float>() + i, sizeof bits);
        return bits;
    }

    std::uint64_t value_ = 0;
};

nlohmann::json check(const Case& made, data::DataLoader& loader) {
    Digest digest;
    for (const Tensor& image : made.decoded) digest.add(contiguous(image));
    double all = 0, left = 0, batches = 0;
    for (const Tree& batch : loader) {
        batches += 1;
        Digest part;
        for (const auto& [key, value] : batch.entries()) {
            if (value.is_list()) {
                part.add(value.elements());
                continue;
            }
            const Tensor& t = value.tensor();
            if (key != "image") {
                part.add(t);
                continue;
            }
            all += mean(t).item();
            left += mean(t.narrow(-1, 0, t.size(-1) / 2)).item();
        }
        digest.add(part, made.is_stream);
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

// Returns the number of batches of a pass.
std::int64_t count(data::DataLoader& loader) {
    std::int64_t batches = 0;
    for ([[maybe_unused]] const Tree& batch : loader) ++batches;
    return batches;
}

void serve(const std::string& name, int workers, const std::string& path) {
    const Case made = case_of(name, path);
    data::DataLoader loader = made.loader(workers);
    data::DataLoader whole = made.loader(0);
    reply({{"engine", "axle"},
           {"batches", made.is_stream ? count(whole) : loader.len()},
           {"handed_bytes", made.handed_bytes},
           {"moved_bytes", made.handed_bytes + made.source_bytes},
           {"memory_gbs", peaks(std::max(workers, 1)).memory}});
    answer_requests([&](const std::string& request, int count) -> nlohmann::json {
        if (request == "check") return check(made, loader);
        if (request == "run") return run(loader, count);
        return nullptr;
    });
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    if (argc % 2 == 0) {  // the last option has no value
        std::cerr << "bench_loader: the option must have a value: " << argv[argc - 1]
                  << "\nusage: bench_loader --case " << axle::bench::kCases
                  << " --workers N --file PATH\n";
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
