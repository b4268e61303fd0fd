// Private to core/files/safetensors.cpp: the format's header, between its text and what it says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/files/safetensors.h"

namespace axle::inline v0 {

inline constexpr std::int64_t kLongestSafetensorsHeader = 100'000'000;

struct SafetensorsHeader {
    std::vector<SafetensorsFile::Entry> entries;  // in the order of the text
    Metadata metadata;
};

// Checks the form alone: what the entries say may still contradict itself and the file, and a name
// may come twice. FileError with the bare reason.
SafetensorsHeader read_safetensors_header(const std::string& text);

// The text for these tensors one after another, padded to a multiple of 8; ValueError where
// read_safetensors_header would refuse it.
std::string write_safetensors_header(const NamedTensors& sorted, const Metadata& metadata);

// The place of a dtype in the format's list; files are sorted by it, the largest first.
int safetensors_rank(DType dtype);

}  // namespace axle::inline v0
