// What the fuzzers share. Each file <name>_fuzz.cpp defines fuzz() and is one program, fuzz_<name>,
// that hands it bytes: those of the files it is given, and, built with AXLE_BUILD_FUZZERS, those
// that libFuzzer thinks of.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace axle::tests {

using Bytes = std::span<const std::byte>;

// Returns for every input there is, or the parser is broken.
void fuzz(Bytes input);

// Stands for the path in messages, which must not show it as it is.
inline constexpr const char* kHostileName = "a\nfile";

// Whether parse() takes its input. What it throws instead is an axle::Error, its text short and fit
// for a terminal; anything else comes through.
bool takes(const std::function<void()>& parse);

// Throws what no fuzz() catches.
void require(bool holds, const char* promise);
void require_same(const Tensor& actual, const Tensor& expected);

std::string_view text_of(Bytes bytes);
Bytes bytes_of(std::string_view text);
Bytes bytes_of(const Tensor& contiguous);

// The bytes as a file, for what reads only paths.
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

// A place in memory to write one file to.
std::string output_path();

}  // namespace axle::tests
