// Reads recordings of the tokenizers library in tests/golden/tokenizers.
#pragma once

#include <span>
#include <string>

#include "core/files/file.h"
#include "data/files/gzip.h"
#include "nlohmann/json.hpp"
#include "tests/vectors.h"

namespace axle::tests {

// Returns the contents of tests/golden/tokenizers/<name>.json.gz.
inline nlohmann::json golden_tokenizer(const std::string& name) {
    const std::string file = read_file(AXLE_TESTS_DIR "/golden/tokenizers/" + name + ".json.gz");
    data::GzipReader reader(std::as_bytes(std::span(file)), name);
    std::string text, part(1 << 20, '\0');
    for (std::size_t n = part.size(); n == part.size();) {
        n = reader.read(std::as_writable_bytes(std::span(part)));
        text.append(part, 0, n);
    }
    return nlohmann::json::parse(text);
}

}  // namespace axle::tests
