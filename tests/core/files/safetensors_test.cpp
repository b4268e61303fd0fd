#include "core/files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/files/file.h"
#include "core/ops.h"
#include "tests/close.h"
#include "tests/dtypes.h"
#include "tests/temporary_folder.h"

namespace axle::tests {

namespace {

const std::string kGolden = AXLE_TESTS_DIR "/golden/every_dtype.safetensors";

// Returns a file with this header and `data` bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
    std::string bytes(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes + header + std::string(data, '\1');
}

// Writes without forcing the bytes to disk.
void write_quickly(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

std::string data_of(const Tensor& x) {
    const Tensor dense = contiguous(x);
    return {static_cast<const char*>(dense.raw_data()),
            static_cast<std::size_t>(dense.numel() * size_of(dense.dtype()))};
}

Tensor from_bytes(const std::string& bytes, const Shape& shape, DType dtype) {
    const Tensor x = Tensor::empty(shape, {dtype});
    std::copy(bytes.begin(), bytes.end(), static_cast<char*>(x.raw_data()));
    return x;
}

// Loads a damaged file. Loading must throw, or return no more bytes than the file has.
void expect_consistent_or_refused(const std::string& path) {
    try {
        std::int64_t bytes = 0;
        for (const auto& [name, x] : load_safetensors(path).tensors)
            bytes += x.numel() * size_of(x.dtype());
        EXPECT_LE(bytes, static_cast<std::int64_t>(std::filesystem::file_size(path)));
    } catch (const FileError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with(path)) << error.what();
    }
}

TEST(Safetensors, ReadsAReferenceFileWithAllDTypes) {
    const auto [tensors, metadata] = load_safetensors(kGolden);
    EXPECT_EQ(metadata, (Metadata{{"format", "pt"}}));
    EXPECT_EQ(tensors.size(), 3 * std::size(kAllDTypes) + 1);
    for (const char* name : {"F64", "F32", "F16", "BF16", "I64", "I32"}) {
        const Tensor& x = tensors.at(name);
        EXPECT_EQ(x.shape(), (Shape{2, 3})) << name;
        EXPECT_EQ(x.to_vector(), (std::vector<double>{-2, -1, 0, 1, 2, 3})) << name;
        EXPECT_EQ(tensors.at(str(name, "/scalar")).item(), -2) << name;
        EXPECT_EQ(tensors.at(str(name, "/empty")).shape(), (Shape{3, 0})) << name;
    }
    EXPECT_EQ(tensors.at("U8").to_vector(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(tensors.at("BOOL").to_vector(), (std::vector<double>{0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(data_of(tensors.at("I16")), std::string("\xfe\xff\xff\xff\0\0\1\0\2\0\3\0", 12));
    EXPECT_EQ(data_of(tensors.at("I8")), std::string("\xfe\xff\0\1\2\3", 6));
    EXPECT_EQ(data_of(tensors.at("F8_E5M2")), std::string("\xc0\xbc\0\x3c\x40\x42", 6));
    EXPECT_EQ(data_of(tensors.at("F8_E4M3")), std::string("\xc0\xb8\0\x38\x40\x44", 6));
    EXPECT_EQ(data_of(tensors.at("U16")).size(), 12u);
    EXPECT_EQ(data_of(tensors.at("C64/scalar")), std::string("\0\0\0\xc0\0\0\0\0", 8));
    EXPECT_EQ(tensors.at("q\"uo\te\\ é 漢/\x7f").item(), 1.5);
}

TEST(Safetensors, WritesSameBytesAsReferenceLibrary) {
    const TemporaryFolder folder;
    const auto [tensors, metadata] = load_safetensors(kGolden);
    save_safetensors(folder / "again", tensors, metadata);
    EXPECT_EQ(read_file(folder / "again"), read_file(kGolden));
}

TEST(Safetensors, RoundTripsTensorsAndMetadata) {
    const TemporaryFolder folder;
    NamedTensors saved;
    for (const DType dtype : kAllDTypes)
        for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 5}, Shape{2, 1, 2, 1, 2, 1, 2, 1}}) {
            std::string bytes(static_cast<std::size_t>(numel(shape) * size_of(dtype)), '\0');
            for (std::size_t i = 0; i < bytes.size(); ++i)
                bytes[i] = static_cast<char>(dtype == boolean ? i % 2 : i * 37 + 1);
            saved.emplace_back(str(dtype, shape), from_bytes(bytes, shape, dtype));
        }
    const Metadata metadata = {{"", ""}, {"a\n\"", "\xc3\xa9"}, {"step", "12"}};
    save_safetensors(folder / "a", saved, metadata);
    const Safetensors loaded = load_safetensors(folder / "a");
    EXPECT_EQ(loaded.metadata, metadata);
    EXPECT_EQ(loaded.tensors.size(), saved.size());
    for (const auto& [name, x] : saved) {
        const Tensor& y = loaded.tensors.at(name);
        EXPECT_EQ(y.dtype(), x.dtype());
        EXPECT_EQ(y.shape(), x.shape());
        EXPECT_EQ(data_of(y), data_of(x)) << name;
    }
}

TEST(Safetensors, RoundTripsFileWithoutTensors) {
    const TemporaryFolder folder;
    save_safetensors(folder / "a", NamedTensors{});
    EXPECT_EQ(read_file(folder / "a"), file_of("{}      ", 0));
    EXPECT_TRUE(load_safetensors(folder / "a").tensors.empty());
    write_file_atomically(folder / "b", file_of("{}", 0));
    EXPECT_TRUE(load_safetensors(folder / "b").tensors.empty());
}

TEST(Safetensors, WritesStridedTensorsRowMajor) {
    const TemporaryFolder folder;
    const Tensor x = arange(12, {f32});
    const Tensor transposed = transpose(reshape(x, {3, 4}), 0, 1);
    save_safetensors(folder / "a",
                     {{"turned", transposed},
                      {"repeated", expand(x[3], {2, 2})},
                      {"bytes", slice(from_bytes("abcdef", {6}, DType::i8), 0, 1, 6, 2)}});
    const Safetensors loaded = load_safetensors(folder / "a");
    expect_same_bits(loaded.tensors.at("turned"), contiguous(transposed));
    expect_same_bits(loaded.tensors.at("repeated"), full({2, 2}, 3.0));
    EXPECT_EQ(data_of(loaded.tensors.at("bytes")), "bdf");
}

TEST(SafetensorsFile, ListsEntriesReadsTensorsByNameAndRejectsUnknownNames) {
    const SafetensorsFile file(kGolden);
    ASSERT_EQ(file.entries().size(), 3 * std::size(kAllDTypes) + 1);
    EXPECT_EQ(file.entries().front().name, "U64");
    EXPECT_EQ(file.entries().front().dtype, DType::u64);
    EXPECT_EQ(file.entries().front().shape, (Shape{2, 3}));
    EXPECT_TRUE(file.contains("F32/scalar"));
    EXPECT_FALSE(file.contains("F32/"));
    EXPECT_EQ(file.tensor("F32/scalar").item(), -2);
    expect_error<FileError>({kGolden.c_str(), "no tensor has this name: 'x\\x0a'"},
                            [&] { file.tensor("x\n"); });
}

TEST(SafetensorsFile, KeepsMappedTensorsValidAfterDestruction) {
    const TemporaryFolder folder;
    save_safetensors(folder / "a", {{"x", arange(100, {f32})}, {"b", ones({3}, {boolean})}});
    Tensor x, copy;
    {
        const SafetensorsFile file(folder / "a");
        x = file.mapped_tensor("x");
        copy = file.tensor("x");
        EXPECT_EQ(file.mapped_tensor("b").to_vector(), (std::vector<double>{1, 1, 1}));
    }
    expect_same_bits(x, arange(100, {f32}));
    // Replacing the file does not affect the mapping, and writing to the mapping does not affect
    // the file.
    save_safetensors(folder / "a", {{"x", x}});
    x.fill_(0);
    expect_same_bits(copy, arange(100, {f32}));
    expect_same_bits(load_safetensors(folder / "a").tensors.at("x"), copy);
}

TEST(SafetensorsFile, ReadsMisalignedTensors) {
    const TemporaryFolder folder;
    std::string bytes = file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )", 0);
    ASSERT_NE(bytes.size() % 4, 0u);
    write_file_atomically(folder / "a", bytes + std::string("\0\0\x80\x3f", 4));
    EXPECT_EQ(SafetensorsFile(folder / "a").mapped_tensor("x").item(), 1);
}

TEST(LoadSafetensors, RejectsTruncatedAndExtendedFiles) {
    const TemporaryFolder folder;
    save_safetensors(folder / "whole", {{"a", arange(3, {f32})}, {"b", ones({2}, {u8})}},
                     {{"k", "v"}});
    const std::string whole = read_file(folder / "whole");
    write_quickly(folder / "cut", whole);
    for (std::size_t n = whole.size(); n-- > 0;) {
        std::filesystem::resize_file(folder / "cut", n);
        expect_error<FileError>({(folder / "cut").c_str()},
                                [&] { load_safetensors(folder / "cut"); });
    }
    write_quickly(folder / "longer", whole + "x");
    expect_error<FileError>(
        {(folder / "longer").c_str(), "1 unexpected bytes after the last tensor"},
        [&] { load_safetensors(folder / "longer"); });
}

TEST(LoadSafetensors, DoesNotCrashOnAnyFlippedBit) {
    const TemporaryFolder folder;
    save_safetensors(folder / "whole", {{"a", arange(3, {f32})}, {"b", ones({2}, {boolean})}},
                     {{"k", "v"}});
    const std::string whole = read_file(folder / "whole");
    std::fstream file(folder / "whole", std::ios::in | std::ios::out | std::ios::binary);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        for (int bit = 0; bit <= 8; ++bit) {
            file.seekp(static_cast<std::streamoff>(i));
            file.put(static_cast<char>(whole[i] ^ (bit < 8 ? 1 << bit : 0))).flush();
            if (bit < 8) expect_consistent_or_refused(folder / "whole");
        }
    }
    EXPECT_EQ(load_safetensors(folder / "whole").tensors.size(), 2u);
}

struct BadFile {
    std::string header;
    std::size_t data;
    const char* reason;
};

TEST(LoadSafetensors, ReportsReasonsForInvalidFiles) {
    const auto tensor = [](const std::string& fields) { return "{\"x\":{" + fields + "}}"; };
    const auto with_shape = [&](const std::string& shape, const std::string& end = "4") {
        return tensor(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,)" + end + "]");
    };
    const auto with_offsets = [&](const std::string& offsets) {
        return tensor(R"("dtype":"F32","shape":[1],"data_offsets":)" + offsets);
    };
    const auto with_dtype = [&](const std::string& dtype) {
        return tensor(R"("shape":[4],"data_offsets":[0,4],"dtype":)" + dtype);
    };
    const std::string one = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
    const std::string two = R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
    const std::string deep(200'000, '[');
    const BadFile bad_files[] = {
        // Invalid JSON, and JSON with another structure.
        {"", 0, "starts with '{'"},
        {" {}", 0, "starts with '{'"},
        {"[]", 0, "starts with '{'"},
        {"\xef\xbb\xbf{}", 0, "starts with '{'"},
        {"{", 0, "not valid JSON at byte"},
        {"{}}", 0, "not valid JSON at byte 3"},
        {"{},", 0, "not valid JSON"},
        {"{}{}", 0, "not valid JSON"},
        {"{} // x", 0, "not valid JSON"},
        {std::string("{}\0\0", 4), 0, "not JSON text"},
        {"{\"x\xff\":" + one + "}", 4, "not valid JSON"},
        {"{\"\\ud800\":" + one + "}", 4, "not valid JSON"},
        {"{'x':" + one + "}", 4, "not valid JSON"},
        {"{\"x\":" + one + ",}", 4, "not valid JSON"},
        {R"({"x":[]})", 0, "tensor 'x': a list where an object is expected"},
        {R"({"x":null})", 0, "tensor 'x': null where an object is expected"},
        {R"({"x":1})", 0, "tensor 'x': a number where an object is expected"},
        {"{\"x\":" + deep, 0, "tensor 'x': a list"},
        {with_shape(deep), 4, "tensor 'x': a list is not allowed here"},
        {with_shape("[{}]"), 4, "tensor 'x': an object is not allowed here"},
        // Duplicate, unknown and missing keys, and invalid metadata.
        {"{\"x\":" + one + ",\"x\":" + two + "}", 8, "duplicate tensor name: 'x'"},
        {R"({"__metadata__":{},"__metadata__":{}})", 0, "duplicate key: '__metadata__'"},
        {R"({"__metadata__":{"a":"b","a":"b"}})", 0, "__metadata__ has a duplicate key: 'a'"},
        {R"({"__metadata__":{"a":1}})", 0, "__metadata__ can contain only text: a number"},
        {R"({"__metadata__":{"a":{}}})", 0, "__metadata__ can contain only text: an object"},
        {R"({"__metadata__":{"a":null}})", 0, "__metadata__ can contain only text: null"},
        {R"({"__metadata__":"a"})", 0, "__metadata__ can contain only text: text"},
        {tensor(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"), 4,
         "duplicate field: dtype"},
        {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1)"), 4,
         "unknown field, expected dtype, shape or data_offsets: 'more'"},
        {tensor(R"("dtype":"F32","shape":[1])"), 4, "data_offsets is missing"},
        {tensor(""), 0, "is missing"},
        // Invalid dtypes.
        {with_dtype(R"("F31")"), 4, "tensor 'x': unknown dtype: F31"},
        {with_dtype(R"("f32")"), 4, "unknown dtype: f32"},
        {with_dtype(R"("F8_E4M3FNUZ")"), 4, "unknown dtype: F8_E4M3FNUZ"},
        {with_dtype(R"("F4")"), 4, "elements smaller than a byte are not supported: F4"},
        {with_dtype(R"("F6_E3M2")"), 4, "smaller than a byte are not supported: F6_E3M2"},
        {with_dtype("4"), 4, "a number is not allowed here"},
        {with_dtype("[]"), 4, "a list is not allowed here"},
        // Invalid numbers.
        {with_shape("[-1]"), 4, "not an integer in [0, 2^63): -1"},
        {with_shape("[-0]"), 4, "not an integer"},
        {with_shape("[1.0]"), 4, "not an integer in [0, 2^63): 1.0"},
        {with_shape("[1e0]"), 4, "not an integer in [0, 2^63): 1e0"},
        {with_shape("[01]"), 4, "not valid JSON"},
        {with_shape("[\"1\"]"), 4, "text is not allowed here"},
        {with_shape("[true]"), 4, "a boolean is not allowed here"},
        {with_shape("1"), 4, "a number is not allowed here"},
        {with_shape("[9223372036854775808]"), 4, "2^63): 9223372036854775808"},
        {with_shape("[18446744073709551617]"), 4, "2^63): 18446744073709551617"},
        {with_shape("[4611686018427387905]"), 4,
         "the shape must have less than 2^63 bytes: [4611686018427387905] of float32"},
        {with_shape("[4294967296,4294967296]", "0"), 0, "less than 2^63 bytes"},
        {with_shape("[0,4294967296,4294967296]", "0"), 0, "less than 2^63 bytes"},
        {with_shape("[1,1,1,1,1,1,1,1,1]"), 4, "more than 8 dimensions"},
        // Invalid offsets and sizes.
        {with_shape("[2]"), 4, "[2] of float32 needs 8 bytes: data_offsets [0, 4]"},
        {with_shape("[1]", "8"), 8, "[1] of float32 needs 4 bytes"},
        {with_shape("[1]", "3"), 3, "needs 4 bytes"},
        {with_shape("[2]", "8"), 4, "must end within the 4 bytes of data in the file"},
        {with_shape("[1000000000000]", "4000000000000"), 4,
         "must end within the 4 bytes of data in the file"},
        {with_offsets("[4,8]"), 8, "the data must begin at 0, without a gap or an overlap"},
        {with_offsets("[4,0]"), 4, "data_offsets [4, 0]"},
        {with_offsets("[0]"), 4, "fewer than two data_offsets"},
        {with_offsets("[]"), 4, "fewer than two data_offsets"},
        {with_offsets("[0,4,4]"), 4, "more than two data_offsets"},
        {with_offsets("[0,4]"), 5, "1 unexpected bytes after the last tensor"},
        {"{\"x\":" + one + ",\"y\":" + one + "}", 4,
         "tensor 'y': the data must begin at 4, without a gap or an overlap"},
        {"{\"x\":" + two + ",\"y\":" + one +
             R"(,"z":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})",
         10, "tensor 'z': the data must begin at 8, without a gap or an overlap"},
        {R"({"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},)"
         R"("n\u0007":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
         1, "tensor 'n\\x07': the data must begin at"},
    };
    const TemporaryFolder folder;
    for (const BadFile& bad : bad_files) {
        SCOPED_TRACE(bad.header.substr(0, 100));
        write_quickly(folder / "invalid", file_of(bad.header, bad.data));
        expect_error<FileError>({(folder / "invalid").c_str(), bad.reason},
                                [&] { load_safetensors(folder / "invalid"); });
    }
}

TEST(LoadSafetensors, RejectsHeaderLengthBeyondLimitOrFile) {
    const TemporaryFolder folder;
    for (const std::uint64_t length : {100'000'001ull, 1ull << 40, 1ull << 63, ~0ull}) {
        std::string bytes = file_of("{}", 0);
        std::memcpy(bytes.data(), &length, sizeof length);
        write_quickly(folder / "a", bytes);
        expect_error<FileError>({(folder / "a").c_str(), "exceeds the limit of 100000000 bytes"},
                                [&] { load_safetensors(folder / "a"); });
    }
    std::string bytes = file_of("{}", 0);
    bytes[0] = 3;
    write_quickly(folder / "a", bytes);
    expect_error<FileError>(
        {(folder / "a").c_str(), "the file ends within its header: 10 of 11 bytes"},
        [&] { load_safetensors(folder / "a"); });
}

TEST(LoadSafetensors, RejectsInvalidBooleans) {
    const TemporaryFolder folder;
    const std::string header = R"({"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})";
    write_quickly(folder / "a", file_of(header, 0) + "\1\2");
    expect_error<FileError>(
        {(folder / "a").c_str(), "tensor 'x': byte 1 of a BOOL tensor must be 0 or 1: 2"},
        [&] { load_safetensors(folder / "a"); });
}

}  // namespace

}  // namespace axle::tests
