// Tests that hostile configurations and indices of models need little memory and work.
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include "nn/files/pretrained.h"
#include "nn/files/weight_files.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "tests/close.h"
#include "tests/peak_memory.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

// Comparisons of strings of equal length call memcmp() of the C library. This definition replaces
// memcmp() in this program and counts its calls. It needs GCC, which calls memcmp() by name, and a
// build without sanitizers, which replace memcmp() themselves.
#if defined(__clang__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AXLE_COUNTS_COMPARISONS 0
#else
#define AXLE_COUNTS_COMPARISONS 1
#endif

namespace axle::tests {
namespace {
std::atomic<std::int64_t> comparisons = 0;
}
}  // namespace axle::tests

#if AXLE_COUNTS_COMPARISONS
extern "C" int memcmp(const void* a, const void* b, std::size_t n) noexcept {
    axle::tests::comparisons.fetch_add(1, std::memory_order_relaxed);
    const auto *x = static_cast<const volatile unsigned char*>(a),
               *y = static_cast<const volatile unsigned char*>(b);
    for (std::size_t i = 0; i < n; ++i)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}
#endif

namespace axle::tests {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Expects that work(2n) makes less than three times as many comparisons as work(n). Linear work
// makes twice as many, and quadratic work four times as many.
void expect_linear(const std::function<void(int n)>& work, int n) {
    if (!AXLE_COUNTS_COMPARISONS) GTEST_SKIP() << "comparisons are not counted in this build";
    const auto count = [&](int size) {
        const std::int64_t before = comparisons;
        work(size);
        return comparisons - before;
    };
    const std::int64_t once = count(n), twice = count(2 * n);
    EXPECT_GT(once, n);
    EXPECT_LT(twice, 3 * once);
}

// Returns the text of a config.json with n unknown fields.
std::string config_with_fields(const std::string& model_type, int n) {
    std::string text = R"({"model_type": ")" + model_type + '"';
    for (int i = 0; i < n; ++i) text += str(", \"field_", 100'000'000 + i, "\": 0");
    return text + "}";
}

TEST(ModelConfig, ReadsAndWritesManyFieldsInLinearTime) {
    expect_linear(
        [](int n) {
            nn::GptConfig::from_json(
                nn::GptConfig::from_json(config_with_fields("gpt2", n)).to_json());
            nn::LlamaConfig::from_json(config_with_fields("llama", n));
        },
        2000);
}

TEST(ModelConfig, ReadsAndWritesManyLabelsInLinearTime) {
    expect_linear(
        [](int n) {
            std::string text = R"({"model_type": "bert", "id2label": {"0": "a")";
            for (int i = 1; i < n; ++i) text += str(", \"", i, "\": \"label_", 1'000'000 + i, '"');
            const auto config = nn::BertConfig::from_json(text + "}}");
            if (std::ssize(config.labels) != n) throw std::runtime_error("labels are missing");
            static_cast<void>(config.to_json());
        },
        2000);
}

TEST(ModelConfig, MapsARepeatedLabelToItsLastClass) {
    nn::BertConfig config;
    config.labels = {"a", "b", "a"};
    const Tree fields = from_json(config.to_json());
    EXPECT_EQ(to_json(fields["id2label"], -1), R"({"0": "a", "1": "b", "2": "a"})");
    EXPECT_EQ(to_json(fields["label2id"], -1), R"({"a": 2, "b": 1})");
}

TEST(ModelConfig, ShortensValuesInMessages) {
    try {
        nn::GptConfig::from_json(R"({"model_type": "gpt2", "n_layer": ")" +
                                 std::string(10'000, 'x') + "\"}");
        FAIL();
    } catch (const ValueError& error) {
        EXPECT_LT(std::string(error.what()).size(), 400u);
    }
}

TEST(SavePretrained, WritesManyConfigurationFieldsInLinearTime) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const nn::GptConfig small{
        .vocab_size = 4, .block_size = 2, .n_layer = 1, .n_head = 1, .n_embd = 2};
    const nn::Gpt model(small);
    expect_linear(
        [&](int n) {
            nn::save_pretrained(model, "Gpt", from_json(config_with_fields("gpt2", n)),
                                folder / "model");
        },
        2000);
}

// Writes a sparse file.
void write_zeros(const std::string& path, std::int64_t bytes) {
    std::ofstream(path).close();
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(bytes));
}

TEST(PretrainedFolder, RejectsLargeConfigurationsWithoutReadingThem) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "config.json";
    write_zeros(path, std::int64_t{2} << 30);
    EXPECT_LE(peak_memory([&] {
                  for (const auto& load :
                       {std::function([&] { nn::Gpt::from_pretrained(folder.path()); }),
                        std::function([&] { nn::pretrained_config(folder.path()); })})
                      try {
                          load();
                          throw std::runtime_error("no error");
                      } catch (const FileError& error) {
                          const std::string text = error.what();
                          for (const std::string& part :
                               {path, std::string("2147483648"), std::to_string(2 * kMiB)})
                              if (text.find(part) == std::string::npos)
                                  throw std::runtime_error(text + " does not contain " + part);
                      }
              }),
              8 * kMiB);
}

TEST(ModelConfig, NeedsAtMost256BytesOfMemoryPerByteOfJson) {
    std::string text = R"({"model_type": "gpt2", "list": [0)";
    while (std::ssize(text) < kMiB) text += ",0";
    text += "]}";
    EXPECT_LE(peak_memory([&] { nn::GptConfig::from_json(text); }), 256 * std::ssize(text));
}

TEST(WeightIndex, RejectsLargeFiles) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "model.safetensors.index.json";
    write_zeros(path, std::int64_t{2} << 30);
    expect_error<FileError>({path.c_str(), "2147483648", "67108864"},
                            [&] { nn::WeightFiles{path}; });
}

TEST(WeightIndex, LimitsTheMemoryOfItsValues) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "model.safetensors.index.json";
    for (const std::string element : {"0", "[]", R"({"":0})"}) {
        std::string text = R"({"weight_map": [)" + element;
        while (std::ssize(text) < 8 * kMiB) text += "," + element;
        std::ofstream(path) << text << "]}";
        EXPECT_LE(peak_memory([&] {
                      try {
                          nn::WeightFiles{path};
                      } catch (const FileError&) {
                          return;
                      }
                      throw std::runtime_error("no error");
                  }),
                  (9 * 8 + 16 + 2) * kMiB)
            << element;
    }
    expect_error<FileError>({path.c_str(), "from_json", "more memory than the limit"},
                            [&] { nn::WeightFiles{path}; });
}

}  // namespace
}  // namespace axle::tests
