// Helpers of the fuzzers. Each file <name>_fuzz.cpp defines fuzz() and becomes one program,
// fuzz_<name>. The program calls fuzz() for the given files. If built with AXLE_BUILD_FUZZERS, it
// also calls fuzz() for inputs that libFuzzer generates.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace axle::tests {

using Bytes = std::span<const std::byte>;

// Tests a parser with the input. Crashes or throws if the parser is wrong.
void fuzz(Bytes input);

// The path that is passed to parsers. Messages must contain it in printable form.
inline constexpr const char* kHostileName = "a\nfile";

// Returns whether parse() succeeds. If it throws an axle::Error, checks that the message is short
// and printable. Other exceptions are rethrown.
bool accepts(const std::function<void()>& parse);

// Throws an exception with the property's text unless the condition is true. fuzz() does not catch
// it.
void require(bool condition, const char* property);
// Requires the same dtype, shape and bits. The tensors must be contiguous.
void require_same(const Tensor& actual, const Tensor& expected);

std::string_view text_of(Bytes bytes);
Bytes bytes_of(std::string_view text);
Bytes bytes_of(const Tensor& contiguous);

// A file in memory with the given bytes, for functions that need a path.
class MemoryFile {
  public:
    explicit MemoryFile(Bytes bytes);
    ~MemoryFile();
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    std::string path() const;

  private:
    int descriptor_;
};

// Returns the path of an output file in memory.
std::string output_path();
// Writes a file in memory, in the folder of output_path(), and returns its path. The name can
// contain a folder, such as "checkpoint/manifest.json". Replaces an earlier file with the same
// name.
std::string memory_file(const std::string& name, Bytes bytes);

}  // namespace axle::tests
