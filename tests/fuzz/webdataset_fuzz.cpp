// Fuzzes the tar archives and the fields of stream_webdataset().
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/webdataset/web_dataset.h"
#include "tests/data/webdataset/tar_files.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

constexpr std::int64_t kMaxBytes = 1 << 16;

// Requires that entries have the same kinds, and the same bytes if they are tensors.
void require_equal(const Tree& actual, const Tree& expected) {
    require(actual.size() == expected.size(), "samples have the same entries");
    for (const auto& [key, value] : expected.entries()) {
        const Tree& other = actual[key];
        require(other.kind() == value.kind(), "values have the same kind");
        if (value.is_tensor()) require_same(other.tensor(), value.tensor());
        if (!value.is_tensor() && !value.is_map() && !value.is_list())
            require(to_json(other) == to_json(value), "values are equal");
    }
}

// Returns the input with valid checksums in all blocks that are not zero, so that the fuzzer
// reaches the code after the check.
std::string with_checksums(Bytes input) {
    std::string blocks(text_of(input));
    for (std::size_t at = 0; at + 512 <= blocks.size(); at += 512) {
        const std::string block = blocks.substr(at, 512);
        if (block.find_first_not_of('\0') != std::string::npos)
            blocks.replace(at, 512, with_checksum(block));
    }
    return blocks;
}

void read(Bytes input) {
    const std::string path = memory_file(kHostileName, input);
    const data::DecodeOptions images = {.max_pixels = 1 << 12};
    std::vector<Tree> samples;
    const bool complete = accepts([&] {
        const auto raw = data::stream_webdataset(std::vector<std::string>{path},
                                                 {.decode = false, .max_sample_bytes = kMaxBytes});
        const auto stream = raw.stream(0);
        while (std::optional<Tree> sample = stream->next()) {
            std::int64_t bytes = 0;
            for (const auto& [key, value] : sample->entries())
                if (value.is_tensor()) bytes += value.numel();
            require(bytes <= kMaxBytes, "samples are not larger than the limit");
            samples.push_back(*std::move(sample));
        }
    });
    const auto decoding = data::stream_webdataset(
        std::vector<std::string>{path}, {.images = images, .max_sample_bytes = kMaxBytes});
    if (complete)
        require(decoding.stream(0)->skip(INT64_MAX) == std::ssize(samples),
                "skip() counts the samples of next()");
    const auto stream = decoding.stream(0);
    for (const Tree& sample : samples) {
        Tree whole, parts;
        if (!accepts([&] { whole = *stream->next(); })) break;
        require(accepts([&] { parts = data::decode_webdataset_sample(sample, images); }),
                "both ways to decode accept the same fields");
        require_equal(parts, whole);
    }
}

}  // namespace

void fuzz(Bytes input) {
    read(input);
    read(bytes_of(with_checksums(input)));
}

}  // namespace axle::tests
