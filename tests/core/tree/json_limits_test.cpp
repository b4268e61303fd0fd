// Tests the memory that from_json() needs for hostile text.
#include <stdexcept>
#include <string>

#include "core/tree/tree.h"
#include "tests/close.h"
#include "tests/peak_memory.h"

namespace axle::tests {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

std::string list_of(const std::string& element, std::size_t bytes) {
    std::string text = "[" + element;
    while (text.size() < bytes) text += "," + element;
    return text + "]";
}

TEST(FromJson, NeedsAtMost64BytesOfMemoryPerByte) {
    for (const char* element :
         {"0", "[]", "[0]", "{}", R"({"":0})", R"("")", "\"0123456789abcdef\""}) {
        const std::string text = list_of(element, kMiB);
        EXPECT_LE(peak_memory([&] { from_json(text); }), 64 * std::ssize(text) + kMiB) << element;
    }
}

TEST(FromJson, ThrowsIfTheValuesNeedMoreMemoryThanTheLimit) {
    constexpr std::size_t kLimit = 8 * kMiB;
    for (const char* element : {"0", "[]", "[0]", "{}", R"({"":0})", R"("")"}) {
        const std::string text = list_of(element, 4 * kMiB);
        EXPECT_LE(peak_memory([&] {
                      try {
                          from_json(text, kLimit);
                      } catch (const ValueError&) {
                          return;
                      }
                      throw std::runtime_error("no error");
                  }),
                  static_cast<std::int64_t>(kLimit) + 2 * kMiB)
            << element;
    }
    expect_error<ValueError>({"from_json: ", "more memory than the limit", ": 1000 bytes"},
                             [] { return from_json(list_of("0", 100), 1000); });
    EXPECT_EQ(from_json(list_of("0", 100), 10'000).size(), 50u);
    // Ordinary text, such as the index of a model's weights, needs much less memory than the limit
    // of 64 bytes per byte.
    std::string index = R"({"weight_map": {)";
    for (int i = 0; i < 1000; ++i)
        index += str("\"model.layers.", i,
                     ".self_attn.q_proj.weight\": \"model-00001-of-00002.safetensors\",\n");
    index.replace(index.size() - 2, 2, "}}");
    EXPECT_EQ(from_json(index, 8 * index.size())["weight_map"].size(), 1000u);
}

}  // namespace
}  // namespace axle::tests
