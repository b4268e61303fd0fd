// Tests load_torch_file() with files that PyTorch has written, such as the files of
// tests/golden/record_torch_files.py, and with valid and invalid files that the tests write.
#include "core/files/torch_file.h"

#include <algorithm>
#include <cstdint>
#include <fstream>

#include <zlib.h>

#include "core/files/file.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/core/files/zip_files.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using Entry = ZipEntry;
using testing::HasSubstr;

std::string recorded(const std::string& name) {
    return AXLE_TESTS_DIR "/fuzz/corpus/torch_file/" + name;
}

Tree load(const std::string& name) { return load_torch_file(recorded(name)); }

// Returns the error message of load_torch_file for these bytes, or "no error".
std::string load_error(const std::string& bytes, TorchFileOptions options = {}) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "weights.pt";
    std::ofstream(path, std::ios::binary) << bytes;
    try {
        load_torch_file(path, options);
    } catch (const FileError& error) {
        EXPECT_THAT(error.what(), HasSubstr(path + ": "));
        return error.what();
    }
    return "no error";
}

std::string file_of(const std::string& pickle) { return zip_of({{"a/data.pkl", pickle}}); }

// Returns a file with one tensor. Its storage has 16 bytes in the file, and `numel` floats
// according to the pickle.
std::string tensor_file(const std::string& rest_of_arguments, const std::string& storage = "0",
                        int numel = 4) {
    const auto text = [](const std::string& value) {
        return "X" + bytes_of(value.size(), 4) + value;
    };
    const std::string pickle =
        "\x80\x02"
        "ctorch._utils\n_rebuild_tensor_v2\n((" +
        text("storage") + "ctorch\nFloatStorage\n" + text(storage) + text("cpu") + "K" +
        bytes_of(numel, 1) + "tQ" + rest_of_arguments + "\x89}tR.";
    return zip_of({{"a/data.pkl", pickle}, {"a/data/0", std::string(16, '\0')}});
}

std::vector<double> eighths(int first, int count) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back((first + i) / 8.0);
    return values;
}

}  // namespace

TEST(LoadTorchFile, ReadsStateDict) {
    const Tree state = load("state");
    int first = 0;
    for (const auto& [name, value] : state.entries()) {
        const Tensor& x = value.tensor();
        if (name == "batchnorm.num_batches_tracked") {
            EXPECT_EQ(x.dtype(), i64);
            EXPECT_EQ(x.item_int(), 7);
            continue;
        }
        EXPECT_EQ(x.to_vector(), eighths(first, static_cast<int>(x.numel()))) << name;
        first += static_cast<int>(x.numel());
    }
    EXPECT_EQ(state.size(), 9u);
    EXPECT_EQ(state["linear2.weight"].tensor().shape(), (Shape{5, 4}));
}

TEST(LoadTorchFile, ReadsAllDTypesBitExactly) {
    const Tree all = load("dtypes");
    EXPECT_EQ(all.size(), 16u);
    for (const auto& [name, value] : all.entries()) {
        const Tensor& x = value.tensor();
        EXPECT_EQ(str(x.dtype()), name);
        ASSERT_EQ(x.shape(), (Shape{4}));
        const auto* bytes = static_cast<const unsigned char*>(x.raw_data());
        for (std::size_t i = 0; i < 4 * static_cast<std::size_t>(size_of(x.dtype())); ++i)
            EXPECT_EQ(bytes[i], x.dtype() == DType::boolean ? i != 1 : i % 64) << name << i;
    }
}

TEST(LoadTorchFile, KeepsShapesStridesAndSharedMemory) {
    const Tree views = load("views");
    EXPECT_EQ(views["transposed"].tensor().shape(), (Shape{4, 3}));
    EXPECT_EQ(views["transposed"].tensor().strides(), (Strides{1, 4}));
    EXPECT_EQ(views["middle"].tensor().to_vector(), eighths(4, 4));
    EXPECT_EQ(views["columns"].tensor().to_vector(),
              (std::vector<double>{1 / 8., 2 / 8., 5 / 8., 6 / 8., 9 / 8., 10 / 8.}));
    EXPECT_EQ(views["scalar"].tensor().item(), 11 / 8.);
    EXPECT_EQ(views["empty"].tensor().shape(), (Shape{0, 5}));
    EXPECT_EQ(views["parameter"].tensor().to_vector(), eighths(0, 6));
    EXPECT_FALSE(views["parameter"].tensor().requires_grad());
    EXPECT_EQ(views["tied"].tensor().impl()->storage, views["tie"].tensor().impl()->storage);
}

TEST(LoadTorchFile, DoesNotModifyFileThroughTensors) {
    Tensor x = load("views")["middle"].tensor();
    x.fill_(3);
    EXPECT_EQ(x.to_vector(), (std::vector<double>{3, 3, 3, 3}));
    EXPECT_EQ(load("views")["middle"].tensor().to_vector(), eighths(4, 4));
}

TEST(LoadTorchFile, ReadsPlainValuesOfPickleProtocols2To5) {
    const std::string expected = R"({
  "none": null,
  "flags": [
    true,
    false
  ],
  "integers": [
    0,
    255,
    65535,
    -1,
    1099511627776,
    -1099511627776
  ],
  "number": -0.125,
  "text": "é",
  "tuple": [
    1,
    [
      2,
      "three"
    ]
  ],
  "dtype": "torch.bfloat16",
  "size": [
    2,
    3
  ],
  "of integers": {
    "0": "zero",
    "-1": "minus one"
  },
  "ordered": {
    "b": 1,
    "a": 2
  },
  "nothing": [
    {},
    [],
    []
  ]
})";
    EXPECT_EQ(to_json(load("plain")), expected);
    for (const char* protocol : {"protocol3", "protocol4", "protocol5"}) {
        Tree all = load(protocol);
        EXPECT_EQ(all["weight"].tensor().to_vector(), eighths(0, 6)) << protocol;
        all.entries().pop_back();
        EXPECT_EQ(to_json(all), expected) << protocol;
    }
}

TEST(LoadTorchFile, ReadsOptimizerState) {
    const Tree state = load("optimizer");
    EXPECT_EQ(state["param_groups"][0]["lr"].number(), 0.25);
    EXPECT_EQ(state["param_groups"][0]["params"].size(), 6u);
    EXPECT_EQ(state["state"]["0"]["step"].tensor().item(), 1);
    EXPECT_EQ(state["state"]["5"]["exp_avg"].tensor().shape(), (Shape{5}));
}

// PyTorch uses the function _rebuild_from_type_v2 to save a tensor that has attributes. A full
// state dict of FSDP 1 contains such tensors (tests/golden/record_fsdp_state.py).
TEST(LoadTorchFile, ReadsTensorsWithAttributes) {
    const Tree state =
        load_torch_file(AXLE_TESTS_DIR "/golden/fsdp_state/full_1/pytorch_model_fsdp.bin");
    ASSERT_EQ(state.size(), 4u);
    EXPECT_EQ(state["0.weight"].tensor().shape(), (Shape{4, 3}));
    EXPECT_EQ(state["0.weight"].tensor().dtype(), f64);
    EXPECT_EQ(state["2.bias"].tensor().shape(), (Shape{1}));
}

// Covers 10.load.
TEST(LoadTorchFile, RejectsUnsupportedContentsWithReason) {
    for (const auto& [file, reason] : std::vector<std::pair<const char*, const char*>>{
             {"call", "contains __builtin__.print, which is not supported"},
             {"counter", "contains collections.Counter, which"},
             {"bytes", "contains _codecs.encode, which"},
             {"big_integer", "an integer exceeds 64 bits"},
             {"key", "a dict has keys that are neither text nor integers"},
             {"deep", "containers are nested deeper than 64 levels"},
             {"repeated",
              "entry 'repeated/data/0': a tensor with shape [1000] repeats its elements"},
             {"legacy", "a bare pickle"},
             {"compressed", "entry 'compressed/.data/serialization_id': is compressed; torch.save"},
             {"flags", "entry 'flags/data/0': is corrupt"},
             {"zip", "it has no entry data.pkl"}})
        expect_error<FileError>({recorded(file).c_str(), reason}, [&] { return load(file); });
    expect_error<FileError>(
        {recorded("flags").c_str(), "flags/data/0", "booleans that are neither 0 nor 1"},
        [] { return load_torch_file(recorded("flags"), {.check_crc = false}); });
}

TEST(LoadTorchFile, DetectsDamageAndTruncation) {
    const std::string whole = read_file(recorded("views"));
    for (const char* part : {"storage", "FloatStorage"}) {
        std::string bytes = whole;
        bytes[bytes.find(part)] ^= 1;
        EXPECT_THAT(load_error(bytes), HasSubstr("entry 'views/data.pkl': is corrupt")) << part;
    }
    for (std::size_t length = 0; length < whole.size(); length += 7)
        EXPECT_THAT(load_error(whole.substr(0, length)), testing::Ne("no error")) << length;
}

TEST(LoadTorchFile, ReadsZip64Files) {
    const Entry pickle{"big/data.pkl", "\x80\x02K\x05."};
    for (const bool is_64 : {false, true}) {
        const TemporaryFolder folder(FolderStorage::in_memory);
        const std::string path = folder / "weights.pt";
        std::ofstream(path, std::ios::binary) << zip_of({pickle, {"big/version", "3\n"}}, is_64);
        EXPECT_EQ(load_torch_file(path).integer(), 5);
    }
}

// The sum of a number near 2^64 and a length exceeds 64 bits.
TEST(LoadTorchFile, RejectsZip64NumbersNear2To64) {
    const std::string whole = zip_of({{"a/data.pkl", "\x80\x02K\x05."}}, true);
    const std::size_t extra = whole.rfind(bytes_of(1, 2) + bytes_of(24, 2)) + 4;
    const std::size_t end = whole.rfind(bytes_of(0x06064b50)) + 40;
    const std::size_t locator = whole.rfind(bytes_of(0x07064b50)) + 8;
    // The positions of six numbers. The entry has two sizes and an offset, and the directory has a
    // size and an offset. The last number is the offset of the zip64 record at the end of the
    // directory.
    for (const std::size_t at : {extra, extra + 8, extra + 16, end, end + 8, locator})
        for (const std::uint64_t less : {1, 4, 8, 16, 30, 46, 56, 100}) {
            SCOPED_TRACE(testing::Message() << "byte " << at << ", 2^64 - " << less);
            std::string bytes = whole;
            bytes.replace(at, 8, bytes_of(-less, 8));
            EXPECT_THAT(load_error(bytes), testing::AnyOf(HasSubstr("points outside of it"),
                                                          HasSubstr("two different sizes"),
                                                          HasSubstr("the maximum of 100000000")));
        }
}

TEST(LoadTorchFile, RejectsInvalidAndUnsupportedZipFiles) {
    const Entry pickle{"a/data.pkl", "\x80\x02K\x05."};
    EXPECT_THAT(load_error(zip_of({pickle, pickle})),
                HasSubstr("entry 'a/data.pkl': duplicate name"));
    EXPECT_THAT(load_error(zip_of({pickle, {"b/data.pkl", "\x80\x02N."}})),
                HasSubstr("several entries named data.pkl"));
    EXPECT_THAT(load_error(zip_of({pickle, {"a/byteorder", "big"}})),
                HasSubstr("entry 'a/byteorder': only little-endian"));
    EXPECT_THAT(load_error(zip_of({pickle, {"a/constants.pkl", ""}})), HasSubstr("TorchScript"));
    const auto changed = [&](std::size_t from_end, char value) {
        std::string bytes = zip_of({pickle});
        bytes[bytes.size() - from_end] = value;
        return load_error(bytes);
    };
    constexpr std::size_t kEnd = 22,
                          kHeader = kEnd + 10 + 46;  // offsets from the end; the name has 10 bytes
    EXPECT_THAT(changed(kEnd - 4, 1), HasSubstr("split zip files are not supported"));
    EXPECT_THAT(changed(kEnd - 10, 2), HasSubstr("directory points outside of it"));
    EXPECT_THAT(changed(kEnd - 12, 127), HasSubstr("directory points outside of it"));
    EXPECT_THAT(changed(kHeader, 'x'), HasSubstr("directory is corrupt"));
    EXPECT_THAT(changed(kHeader - 8, 1), HasSubstr("is encrypted"));
    EXPECT_THAT(changed(kHeader - 10, 8), HasSubstr("is compressed"));
    EXPECT_THAT(changed(kHeader - 42, 1), HasSubstr("is not at the offset given in the directory"));
    EXPECT_THAT(changed(kHeader - 46, 'b'),
                HasSubstr("is not at the offset given in the directory"));
    EXPECT_THAT(load_error(""), HasSubstr("not a complete zip file"));
    EXPECT_THAT(load_error(std::string(100, 'x')), HasSubstr("not a complete zip file"));
}

TEST(LoadTorchFile, RejectsInvalidPickles) {
    using namespace std::string_literals;
    for (const auto& [pickle, reason] : std::vector<std::pair<std::string, const char*>>{
             {"", "pickle: byte 0: unexpected end"},
             {"\x80\x01N.", "the protocol must be from 2 to 5: 1"},
             {"\x80\x06N.", "the protocol must be from 2 to 5: 6"},
             {"N", "pickle: byte 1: unexpected end"},
             {".", "does not end with exactly one value"},
             {"NN.", "does not end with exactly one value"},
             {"(N.", "does not end with exactly one value"},
             {"0.", "too few values"},
             {"N(0.", "too few values"},
             {"t.", "no mark"},
             {"h\x05.", "not in the memo"},
             {"q\x05.", "too few values"},
             {"X\xff\xff\xff\xff.", "unexpected end"},
             {"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "unexpected end"},
             {"](NNu.", "items are set on a value that is not a dict"},
             {"}(Nu.", "a key without a value"},
             {"}Na.", "items are appended to a value that is not a list"},
             {"NNR.", "a call needs the name of a global and a tuple of arguments"},
             {"NNb.", "a value that is neither a dict nor an object has state"},
             {"NQ.", "a storage is not part of a tensor"},
             {"ctorch\nSize\n.",
              "a value of torch must be a dtype, such as torch.float32: torch.Size"},
             {"ctorch\nfloat32\n)R.",
              "only functions that rebuild tensors can be called: torch.float32"},
             {"ctorch\nFloatStorage\n)R.",
              "only functions that rebuild tensors can be called: torch.FloatStorage"},
             {"ctorch\nSize\n)R.", "does not have the structure that torch.save writes"},
             {"ccollections\nOrderedDict\n(NtR.", "an OrderedDict has constructor arguments"},
             {"c__builtin__\neval\n.", "contains __builtin__.eval"},
             {"\x8c\x02os\x8c\x06system\x93.", "contains os.system"},
             {"c\n\n.", "contains ., which"},
             {"\x81.", "too few values"},
             {"N)\x81.", "a new object needs the name of a class and a tuple of arguments"},
             {"ctorch\nSize\n)\x81.", "objects of this type are not supported: torch.Size"},
             {"\x92.", "opcode 146 is not supported"},
             {"i.", "opcode 105 is not supported"},
             {"]q\x00h\x00"
              "a."s,
              "deeper than 64 levels"},
             {"}(X\x01\x00\x00\x00"
              "aNX\x01\x00\x00\x00"
              "aNu."s,
              "duplicate key: 'a'"}})
        EXPECT_THAT(load_error(file_of(pickle)), HasSubstr(reason)) << reason;
}

TEST(LoadTorchFile, RejectsExponentiallyNestedContainers) {
    std::string nested = "\x80\x02]q" + bytes_of(0, 1) + "0";
    for (int i = 0; i < 40; ++i)
        nested += "](h" + bytes_of(i, 1) + "h" + bytes_of(i, 1) + "eq" + bytes_of(i + 1, 1) + "0";
    nested += "h" + bytes_of(40, 1) + ".";
    EXPECT_THAT(load_error(file_of(nested)), HasSubstr("the values need more memory than "));
}

TEST(LoadTorchFile, LimitsRepeatedReferencesToOneList) {
    const auto naming = [](int times) {
        std::string pickle = "\x80\x02](";
        for (int i = 0; i < 200; ++i) pickle += "K\x01";
        pickle += "eq" + bytes_of(0, 1) + "0](";
        for (int i = 0; i < times; ++i) pickle += "h" + bytes_of(0, 1);
        return file_of(pickle + "e.");
    };
    EXPECT_EQ(load_error(naming(100)), "no error");
    EXPECT_THAT(load_error(naming(10000)), HasSubstr("the values need more memory than "));
}

TEST(LoadTorchFile, RejectsInvalidShapesStridesAndStorages) {
    EXPECT_EQ(load_error(tensor_file("K" + bytes_of(0, 1) + "K\x04\x85K\x01\x85")), "no error");
    const std::string zero = "K" + bytes_of(0, 1);
    for (const auto& [arguments, reason] : std::vector<std::pair<std::string, const char*>>{
             {"K\x01K\x04\x85K\x01\x85", "at element 1 is out of bounds"},
             {zero + "K\x05\x85K\x01\x85", "is out of bounds"},
             {zero + "K\x04\x85K\x02\x85", "is out of bounds"},
             {zero + "K\x05\x85" + zero + "\x85", "repeats its elements"},
             {"J\xff\xff\xff\xffK\x01\x85K\x01\x85", "at element -1 is out of bounds"},
             {zero + "J\xff\xff\xff\xff\x85K\x01\x85", "negative sizes"},
             {zero + "K\x04\x85J\xff\xff\xff\xff\x85", "negative strides"},
             {zero + "K\x04\x85)", "different numbers of sizes and strides"},
             {zero + "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85\x8a\x08\xff\xff\xff\xff\xff\xff"
                     "\xff\x7f\x85",
              "is out of bounds"},
             {zero + "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x04\x86K\x01K\x01\x86",
              "number of elements overflows int64"},
             {zero + "(KKKKKKKKKKKKKKKKKKt)", "more than"},
             {zero + "X\x01" + std::string(3, '\0') + "aK\x01\x85", "does not have the structure"}})
        EXPECT_THAT(load_error(tensor_file(arguments)), HasSubstr(reason)) << reason;
    EXPECT_THAT(load_error(tensor_file(zero + "K\x04\x85K\x01\x85", "1")),
                HasSubstr("entry 'a/data/1': is missing"));
    EXPECT_THAT(load_error(tensor_file(zero + "K\x04\x85K\x01\x85", "0", 5)),
                HasSubstr("entry 'a/data/0': its size does not match the storage"));
}

TEST(LoadTorchFile, ReportsMissingFile) {
    expect_error<FileError>({"/no/such/file.bin: can't"},
                            [] { return load_torch_file("/no/such/file.bin"); });
}

TEST(LoadTorchFile, ReadsUnknownTypesAsNullOnRequest) {
    const std::string path = AXLE_TESTS_DIR "/golden/accelerate_state/whole/random_states_0.pkl";
    expect_error<FileError>({path.c_str(), "numpy"}, [&] { return load_torch_file(path); });
    const Tree states = load_torch_file(path, {.unknown_as_null = true});
    EXPECT_EQ(states["step"].integer(), 6);
    EXPECT_TRUE(states["numpy_random_seed"][1].is_null());
    EXPECT_EQ(states["torch_manual_seed"].tensor().dtype(), u8);
}

}  // namespace axle::tests
