#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

constexpr std::size_t kLongestMessage = 2000;

void check_message(std::string_view text) {
    require(!text.empty() && text.size() <= kLongestMessage, "a message is neither empty nor long");
    while (!text.empty()) {
        const bool ascii = text[0] >= 0x20 && text[0] < 0x7f;
        const std::size_t length = ascii ? 1 : utf8_length(text);
        require(length != 0, "a message has no control characters and is UTF-8");
        text.remove_prefix(length);
    }
}

}  // namespace

bool takes(const std::function<void()>& parse) {
    try {
        parse();
        return true;
    } catch (const Error& error) {
        check_message(error.what());
        return false;
    }
}

void require(bool holds, const char* promise) {
    if (!holds) throw std::logic_error(std::string("does not hold: ") + promise);
}

void require_same(const Tensor& actual, const Tensor& expected) {
    require(actual.dtype() == expected.dtype() && actual.shape() == expected.shape(),
            "dtype and shape are those that were written");
    const Bytes a = bytes_of(actual), b = bytes_of(expected);
    require(std::ranges::equal(a, b), "elements are those that were written");
}

std::string_view text_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Bytes bytes_of(const Tensor& contiguous) {
    return {static_cast<const std::byte*>(contiguous.raw_data()),
            static_cast<std::size_t>(contiguous.numel() * size_of(contiguous.dtype()))};
}

MemoryFile::MemoryFile(Bytes bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    const auto written = ::write(descriptor_, bytes.data(), bytes.size());
    require(written == std::ssize(bytes), "there is memory for a small file");
}
MemoryFile::~MemoryFile() { ::close(descriptor_); }
std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

std::string output_path() {
    static const TemporaryFolder folder(FolderStorage::in_memory);
    return folder / "output";
}

}  // namespace axle::tests

// libFuzzer's entry; it gives each input memory of its own, of just that size.
extern "C" int LLVMFuzzerTestOneInput(  // NOLINT(readability-identifier-naming): libFuzzer's
    const std::uint8_t* data, std::size_t size) {
    axle::tests::fuzz(std::as_bytes(std::span(data, size)));
    return 0;
}

#ifndef AXLE_LIBFUZZER
// fuzz_<name> folder...: all files of these folders. What starts with a dash is for libFuzzer.
int main(int argc, char** argv) {
    int inputs = 0, broken = 0;
    for (const std::string folder : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
        if (folder.starts_with('-')) continue;
        for (const auto& file : std::filesystem::directory_iterator(folder)) {
            const std::string text = axle::read_file(file.path().string());
            const axle::tests::Bytes bytes = axle::tests::bytes_of(text);
            try {
                ++inputs;
                axle::tests::fuzz(std::vector(bytes.begin(), bytes.end()));  // of just that size
            } catch (const std::exception& error) {
                ++broken;
                std::cerr << file.path().string() << ": " << error.what() << '\n';
            }
        }
    }
    std::cout << inputs << " inputs, " << broken << " broke the parser\n";
    return inputs != 0 && broken == 0 ? 0 : 1;
}
#endif
