// Tests that hostile files are rejected without using much memory or time.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/files/pickle.h"
#include "core/files/safetensors.h"
#include "core/files/torch_file.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/peak_memory.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

// Returns the message of the FileError that f throws, or "no error".
std::string file_error(const std::function<void()>& f) {
    try {
        f();
    } catch (const FileError& error) {
        return error.what();
    }
    return "no error";
}

// Throws std::runtime_error unless f throws a FileError with this text.
void must_fail(const std::string& text, const std::function<void()>& f) {
    if (const std::string error = file_error(f); error.find(text) == std::string::npos)
        throw std::runtime_error("unexpected: " + error);
}

void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

std::string repeated(std::string_view part, std::size_t bytes) {
    std::string text;
    text.reserve(bytes + part.size());
    while (text.size() < bytes) text += part;
    return text;
}

std::string eight_digits(int i) {
    const std::string digits = std::to_string(i);
    return std::string(8 - digits.size(), '0') + digits;
}

TEST(ReadFile, RejectsFilesThatExceedTheMemoryOrTheGivenLimit) {
    if (kSanitized) GTEST_SKIP() << "a sanitizer ends the process if an allocation is too large";
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "huge";
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    const int result = ::ftruncate(file, std::int64_t{1} << 62);
    ::close(file);
    if (result != 0) GTEST_SKIP() << "the file system has no files of 2^62 bytes";
    expect_error<FileError>({path.c_str(), "not enough memory to read 4611686018427387904 bytes"},
                            [&] { read_file(path); });
    expect_error<FileError>({path.c_str(), "4611686018427387904", "1000"},
                            [&] { read_file(path, 1000); });
}

// --- safetensors

// Writes a file with this header and without data.
void write_header(const std::string& path, const std::string& header) {
    std::string bytes(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(bytes.data(), &length, sizeof length);
    write_bytes(path, bytes + header);
}

TEST(SafetensorsLimits, BoundTheMemoryOfAHeaderWithManyTensors) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::string header = "{";
    for (int i = 0; i < 300'000; ++i)
        header += '"' + eight_digits(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
    header.back() = '}';
    write_header(folder / "f", header);
    const auto size = std::ssize(header);
    EXPECT_LE(peak_memory([&] {
                  if (SafetensorsFile(folder / "f").entries().size() != 300'000)
                      throw std::runtime_error("entries are missing");
              }),
              4 * size + kMiB);
}

TEST(SafetensorsLimits, RejectAHeaderWithTooManyTensors) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::string header = "{";
    for (int i = 0; i <= 1'000'000; ++i)
        header += '"' + eight_digits(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
    header.back() = '}';
    write_header(folder / "f", header);
    EXPECT_LE(peak_memory([&] {
                  must_fail("f: the header has more than 1000000 tensors",
                            [&] { load_safetensors(folder / "f"); });
              }),
              4 * std::ssize(header));
}

TEST(SafetensorsLimits, RejectTooMuchMetadataInHeadersAndWhenSaving) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::string header = R"({"__metadata__":{)";
    for (int i = 0; i < 1'000'000; ++i) header += '"' + eight_digits(i) + R"(":"",)";
    header.back() = '}';
    header += '}';
    write_header(folder / "f", header);
    EXPECT_LE(peak_memory([&] {
                  must_fail("f: __metadata__ has more than 100000 keys",
                            [&] { SafetensorsFile{folder / "f"}; });
              }),
              2 * std::ssize(header) + 16 * kMiB);
    Metadata metadata;
    for (int i = 0; i <= 100'000; ++i) metadata.emplace(eight_digits(i), "");
    expect_error<ValueError>(
        {"save_safetensors: the metadata must have at most 100000 keys: it has 100001"},
        [&] { save_safetensors(folder / "g", NamedTensors{}, metadata); });
    metadata.erase(metadata.begin());
    save_safetensors(folder / "g", NamedTensors{}, metadata, Durability::none);
    EXPECT_EQ(load_safetensors(folder / "g").metadata, metadata);
}

TEST(SafetensorsLimits, BoundTheMemoryAndTheLengthOfStrings) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string text(8 * kMiB - 2, 'x');
    const std::string whole = R"({"__metadata__":{"a":")" + text + "\"}}";
    write_header(folder / "f", whole);
    EXPECT_LE(peak_memory([&] {
                  if (SafetensorsFile(folder / "f").metadata().at("a") != text)
                      throw std::runtime_error("the text differs");
              }),
              8 * std::ssize(whole));
    const std::string gap(100'000'000 - 100, '\n');
    for (const std::string& header :
         {whole.substr(0, whole.size() - 3), R"({"__metadata__":{"a":")" + text + "\1\"}}",
          R"({"__metadata__":{"a":")" + gap, "{" + gap + "x", "{" + gap.substr(0, 500'000) + "x",
          R"({"a":{"shape":[)" + std::string(90'000'000, '1')}) {  // NOLINT(*-string-constructor)
        write_header(folder / "f", header);
        EXPECT_LE(peak_memory(
                      [&] { must_fail("f: the header ", [&] { SafetensorsFile{folder / "f"}; }); }),
                  8 * std::ssize(header) + 32 * kMiB)
            << header.substr(0, 30);
    }
    write_header(folder / "f", R"({"__metadata__":{"a":")" + text + "xxx\"}}");
    expect_error<FileError>(
        {(folder / "f").c_str(),
         "the header must have at most 8388608 bytes in a name or text: more at byte 8388630"},
        [&] { SafetensorsFile{folder / "f"}; });
    save_safetensors(folder / "g", NamedTensors{}, {{"a", text}}, Durability::none);
    EXPECT_EQ(load_safetensors(folder / "g").metadata.at("a"), text);
    expect_error<ValueError>(
        {"save_safetensors: a name or text must have at most 8388608 bytes as JSON: 8388609 bytes: "
         "'xxxx"},
        [&] {
            save_safetensors(folder / "g", NamedTensors{}, {{"a", text + "x"}});
        });
}

// --- pickles

std::span<const std::byte> span_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

TEST(PickleLimits, BoundTheMemoryOfRepeatedOpcodes) {
    using namespace std::string_literals;
    constexpr std::int64_t kBudget = 32 * kMiB;
    const std::string sparse = [] {  // stores a value in the memo as 1, 3, 5 and so on
        std::string opcodes = "N";
        for (std::uint32_t i = 1; opcodes.size() < 16 * kMiB; i += 2)
            opcodes += "r" + std::string(reinterpret_cast<const char*>(&i), sizeof i);
        return opcodes;
    }();
    for (const std::string& opcodes :
         {repeated("N", 16 * kMiB), repeated("]", 16 * kMiB), repeated("(", 16 * kMiB),
          repeated("2", 16 * kMiB).insert(0, "N"), repeated("\x94", 16 * kMiB).insert(0, "N"),
          "Nq\0"s + repeated("h\0"s, 16 * kMiB), repeated("K\1\x85", 16 * kMiB),
          "](" + repeated("K\1", 16 * kMiB) + "e.", "}(" + repeated("NN", 16 * kMiB) + "u.",
          "]" + repeated("Na", 16 * kMiB), sparse}) {
        const std::int64_t peak = peak_memory([&] {
            must_fail(
                "the values need more memory than 33554432 "
                "bytes",
                [&] {
                    MemoryBudget budget(kBudget);
                    read_pickle(span_of(opcodes), budget, [](std::string_view) { return true; });
                });
        });
        EXPECT_LE(peak, kBudget + 2 * kMiB) << opcodes.substr(0, 4);
    }
}

TEST(ReadPickle, ChecksARepeatedGlobalNameOnce) {
    const std::string pickle = "\x80\x02(" + repeated("ctorch\nSize\n", 1 << 16) + "t.";
    int calls = 0;
    MemoryBudget budget(8 * kMiB);
    const Pickle contents = read_pickle(span_of(pickle), budget, [&](std::string_view name) {
        ++calls;
        return name == "torch.Size";
    });
    EXPECT_GT(contents.items(contents.value(contents.root())).size(), 5000u);
    EXPECT_EQ(calls, 1);
}

TEST(PickleLimits, RejectLongNamesAndPickles) {
    const auto error = [](const std::string& pickle) {
        return file_error([&] {
            MemoryBudget budget(kMiB);
            read_pickle(span_of(pickle), budget, [](std::string_view) { return true; });
        });
    };
    EXPECT_EQ(error("c" + std::string(999, 'a') + "\nb\n."), "no error");
    EXPECT_THAT(error("c" + std::string(1000, 'a') + "\nb\n."),
                HasSubstr("the name of a global has more than 1000 bytes"));
    EXPECT_EQ(error(std::string(kMaxPickle + 1, 'N')),
              "the pickle has 100000001 bytes, more than the maximum of 100000000");
}

// --- files of torch.save

template <class T>
std::string little_endian(T value, std::size_t length = sizeof(T)) {
    return {reinterpret_cast<const char*>(&value), length};
}

// Returns a zip file with stored entries: "a/data.pkl", and empty entries with these names.
std::string zip_of(const std::string& pickle, const std::vector<std::string>& empty = {}) {
    std::string file, directory;
    const auto add = [&](const std::string& name, const std::string& bytes) {
        const std::string sizes = std::string(14, '\0') +
                                  little_endian(static_cast<std::uint32_t>(bytes.size())) +
                                  little_endian(static_cast<std::uint32_t>(bytes.size())) +
                                  little_endian(static_cast<std::uint16_t>(name.size()));
        directory += "PK\1\2" + std::string(2, '\0') + sizes + std::string(12, '\0') +
                     little_endian(static_cast<std::uint32_t>(file.size())) + name;
        file += "PK\3\4" + sizes + std::string(2, '\0') + name + bytes;
    };
    add("a/data.pkl", pickle);
    for (const std::string& name : empty) add(name, "");
    const auto count = static_cast<std::uint64_t>(empty.size()) + 1;
    const std::uint64_t begin = file.size(), end = begin + directory.size();
    file += directory;
    file += "PK\6\6" + std::string(20, '\0') + little_endian(count) + little_endian(count) +
            little_endian(directory.size()) + little_endian(begin);
    file += "PK\6\7" + std::string(4, '\0') + little_endian(end) + std::string(4, '\0');
    return file + "PK\5\6" + std::string(18, '\0');
}

TEST(TorchFileLimits, BoundTheMemoryOfTheZipDirectory) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::vector<std::string> names;
    names.reserve(200'000);
    for (int i = 0; i < 200'000; ++i) names.push_back(eight_digits(i));
    const std::string zip = zip_of("\x80\x02N.", names);
    write_bytes(folder / "f", zip);
    EXPECT_LE(peak_memory([&] {
                  if (!load_torch_file(folder / "f", {.check_crc = false}).is_null())
                      throw std::runtime_error("wrong value");
              }),
              2 * std::ssize(zip) + kMiB);
}

TEST(TorchFileLimits, BoundTheMemoryOfRepeatedReferences) {
    using namespace std::string_literals;
    const TemporaryFolder folder(FolderStorage::in_memory);
    constexpr std::int64_t kPickleBytes = 16 * kMiB;
    constexpr std::int64_t kLimit = (64 + 4 * 64) * kMiB + 8 * (kPickleBytes - 4 * kMiB);
    const auto load = [&] { load_torch_file(folder / "f", {.check_crc = false}); };
    for (const std::string& value : {"N"s, "]"s, ")"s, "X\4\0\0\0text"s}) {
        write_bytes(folder / "f", zip_of("\x80\x02" + value + "q\0"s + "0](" +
                                         repeated("h\0"s, kPickleBytes) + "e."));
        EXPECT_LE(peak_memory([&] {
                      must_fail("f: entry 'a/data.pkl': the values need more memory than ", load);
                  }),
                  kLimit + kPickleBytes + 4 * kMiB);
    }
}

// A tensor of a few bytes in the pickle can refer to a long name. Each use of the name counts
// toward the memory limit, which also limits the work.
TEST(TorchFileLimits, CountEachUseOfALongNameTowardTheMemoryLimit) {
    using namespace std::string_literals;
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string key(40'000, 'k');
    const std::string storage = "(X\7\0\0\0storagectorch\nFloatStorage\nX"s +
                                little_endian(static_cast<std::uint32_t>(key.size())) + key +
                                "X\3\0\0\0cpuK\0tq\0000"s;
    const std::string tensor = "ctorch._utils\n_rebuild_tensor_v2\n(h\0QK\0K\0\x85K\1\x85\x89}tR"s;
    const auto error = [&](std::size_t tensors) {
        write_bytes(folder / "f", zip_of("\x80\x02" + storage + "](" +
                                             repeated(tensor, tensors * tensor.size()) + "e.",
                                         {"a/data/" + key}));
        return file_error([&] { load_torch_file(folder / "f", {.check_crc = false}); });
    };
    EXPECT_EQ(error(1000), "no error");
    EXPECT_THAT(error(10'000), HasSubstr("the values need more memory than "));
}

}  // namespace
}  // namespace axle::tests
