#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
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

constexpr std::size_t kMaxMessage = 2000;

void check_message(std::string_view text) {
    require(!text.empty() && text.size() <= kMaxMessage,
            "an error message is not empty and not too long");
    while (!text.empty()) {
        const bool ascii = text[0] >= 0x20 && text[0] < 0x7f;
        const std::size_t length = ascii ? 1 : utf8_length(text);
        require(length != 0, "an error message is UTF-8 without control characters");
        text.remove_prefix(length);
    }
}

}  // namespace

bool accepts(const std::function<void()>& parse) {
    try {
        parse();
        return true;
    } catch (const Error& error) {
        check_message(error.what());
        return false;
    }
}

void require(bool condition, const char* property) {
    if (!condition) throw std::logic_error(std::string("violated: ") + property);
}

void require_same(const Tensor& actual, const Tensor& expected) {
    require(actual.dtype() == expected.dtype() && actual.shape() == expected.shape(),
            "dtype and shape equal the written ones");
    const Bytes a = bytes_of(actual), b = bytes_of(expected);
    require(std::ranges::equal(a, b), "elements equal the written ones");
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
    const auto count = ::write(descriptor_, bytes.data(), bytes.size());
    require(count == std::ssize(bytes), "the input can be written to memory");
}
MemoryFile::~MemoryFile() { ::close(descriptor_); }
std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

namespace {

const TemporaryFolder& memory_folder() {
    static const TemporaryFolder folder(FolderStorage::in_memory);
    return folder;
}

}  // namespace

std::string output_path() { return memory_folder() / "output"; }

std::string memory_file(const std::string& name, Bytes bytes) {
    const std::filesystem::path path(memory_folder() / name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text_of(bytes);
    return path.string();
}

}  // namespace axle::tests

// Runs fuzz() for libFuzzer, which allocates each input at exactly its size.
extern "C" int LLVMFuzzerTestOneInput(  // NOLINT(readability-identifier-naming): libFuzzer's
    const std::uint8_t* data, std::size_t size) {
    axle::tests::fuzz(std::as_bytes(std::span(data, size)));
    return 0;
}

#ifndef AXLE_LIBFUZZER
// Usage: fuzz_<name> folder... Tests all files of the folders. Options of libFuzzer are ignored.
// The exit code is 1 if a file fails or there are no files.
int main(int argc, char** argv) {
    int inputs = 0, failures = 0;
    for (const std::string folder : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
        if (folder.starts_with('-')) continue;
        for (const auto& file : std::filesystem::directory_iterator(folder)) {
            const std::string text = axle::read_file(file.path().string());
            const axle::tests::Bytes bytes = axle::tests::bytes_of(text);
            try {
                ++inputs;
                axle::tests::fuzz(std::vector(
                    bytes.begin(), bytes.end()));  // the copy has exactly the input's size
            } catch (const std::exception& error) {
                ++failures;
                std::cerr << file.path().string() << ": " << error.what() << '\n';
            }
        }
    }
    std::cout << inputs << " inputs, " << failures << " failed\n";
    return inputs != 0 && failures == 0 ? 0 : 1;
}
#endif
