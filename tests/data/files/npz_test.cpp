#include "data/files/npz.h"

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/files/file.h"
#include "core/ops.h"
#include "data/files/npy.h"
#include "tests/close.h"
#include "tests/core/files/zip_files.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using testing::HasSubstr;
using tests::expect_error;
using tests::zip_of;
using Values = std::vector<double>;

// Returns the path of a file that record_npz.py has written.
std::string npz_file(const std::string& name) { return AXLE_TESTS_DIR "/golden/npz/" + name; }

// Returns the message of the FileError of a file with these bytes, or "no error".
std::string npz_error(const std::string& bytes, const NpzOptions& options = {}) {
    static const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
    const std::string path = folder / "a.npz";
    std::ofstream(path, std::ios::binary) << bytes;
    try {
        load_npz(path, options);
    } catch (const FileError& error) {
        const std::string text = error.what();
        EXPECT_EQ(text.rfind(path + ": ", 0), 0u) << text;
        return text.substr(path.size() + 2);
    }
    return "no error";
}

// Returns the bytes of an .npy file.
std::string npy_of(const Tensor& tensor) {
    const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
    save_npy(folder / "a.npy", tensor);
    return read_file(folder / "a.npy");
}

// Covers 32.npz.
TEST(Npz, ReadsStoredAndCompressedArraysOfNumPy) {
    for (const char* name : {"stored.npz", "deflated.npz"}) {
        SCOPED_TRACE(name);
        const auto arrays = load_npz(npz_file(name));
        ASSERT_EQ(arrays.size(), 8u);
        EXPECT_EQ(arrays.at("arr_0").dtype(), u8);
        EXPECT_EQ(arrays.at("arr_0").to_vector(), (Values{0, 1, 2}));
        EXPECT_EQ(arrays.at("x").shape(), (Shape{2, 3}));
        EXPECT_EQ(arrays.at("x").to_vector(), (Values{-2, -1, 0, 1, 2, 3}));
        EXPECT_EQ(arrays.at("labels/train").dtype(), i64);
        EXPECT_EQ(arrays.at("labels/train").to_vector(), (Values{0, 1, 2, 3, 4}));
        EXPECT_EQ(arrays.at("mask").dtype(), boolean);
        EXPECT_EQ(arrays.at("mask").to_vector(), (Values{1, 0, 1}));
        EXPECT_EQ(arrays.at("big_endian").dtype(), i32);
        EXPECT_EQ(arrays.at("big_endian").to_vector(), (Values{0, 1, 2, 3, 4, 5}));
        EXPECT_EQ(arrays.at("scalar").item(), 7.5);
        EXPECT_EQ(arrays.at("empty").shape(), (Shape{3, 0}));
        EXPECT_EQ(arrays.at("zeros").to_vector(), Values(2000, 0));
    }
    EXPECT_TRUE(load_npz(npz_file("none.npz")).empty());
}

TEST(Npz, ReadsZip64Files) {
    EXPECT_EQ(npz_error(zip_of({{"a.npy", npy_of(ones({2}))}}, true)), "no error");
}

TEST(Npz, ReadsOnlyTheSelectedArrays) {
    const auto arrays = load_npz(npz_file("others.npz"), {.names = {"good"}});
    ASSERT_EQ(arrays.size(), 1u);
    EXPECT_EQ(arrays.at("good").to_vector(), (Values{0, 1, 2}));
    expect_error<FileError>({npz_file("others.npz").c_str(), "entry 'objects.npy': byte ",
                             "pickled Python objects are not supported"},
                            [] { load_npz(npz_file("others.npz")); });
    expect_error<FileError>(
        {npz_file("others.npz").c_str(), "entry 'text.npy': byte ", "unsupported dtype"},
        [] { load_npz(npz_file("others.npz"), {.names = {"text"}}); });
    expect_error<FileError>(
        {npz_file("others.npz").c_str(), "contains no array 'y', only good, objects, text"}, [] {
            load_npz(npz_file("others.npz"), {.names = {"good", "y"}});
        });
    expect_error<FileError>({npz_file("none.npz").c_str(), "contains no array 'y'", "an empty"},
                            [] { load_npz(npz_file("none.npz"), {.names = {"y"}}); });
}

TEST(Npz, LimitsTheSizeOfCompressedArrays) {
    const std::string path = npz_file("deflated.npz");
    // The .npy file of an array of 2000 bytes has a header of 128 bytes.
    EXPECT_EQ(load_npz(path, {.names = {"zeros"}, .max_inflated = 2128}).size(), 1u);
    expect_error<FileError>({path.c_str(), "entry 'zeros.npy': has 2128 bytes after decompression",
                             "only 2127 bytes of NpzOptions::max_inflated are left"},
                            [&] { load_npz(path, {.names = {"zeros"}, .max_inflated = 2127}); });
    // The limit applies to all arrays together, and only to compressed ones.
    EXPECT_THROW(load_npz(path, {.max_inflated = 2128}), FileError);
    EXPECT_EQ(load_npz(npz_file("stored.npz"), {.max_inflated = 0}).size(), 8u);
    expect_error<ValueError>({"load_npz: max_inflated must not be negative: -1"},
                             [&] { load_npz(path, {.max_inflated = -1}); });
}

TEST(Npz, RejectsSizesThatDeflateCannotReachBeforeAllocatingMemory) {
    std::string bytes = read_file(npz_file("deflated.npz"));
    // The directory entry of zeros.npy: the size is 22 bytes before the name.
    const std::size_t name = bytes.rfind("zeros.npy");
    bytes.replace(name - 22, 4, std::string("\xff\xff\xff\x7f", 4));
    EXPECT_THAT(npz_error(bytes), HasSubstr("entry 'zeros.npy': cannot have 2147483647 bytes"));
    bytes.replace(name - 22, 4, std::string("\0\x20\0\0", 4));
    EXPECT_THAT(npz_error(bytes), HasSubstr("entry 'zeros.npy': is corrupt: its size is wrong"));
    bytes.replace(name - 22, 4, std::string("\0\1\0\0", 4));
    EXPECT_THAT(npz_error(bytes), HasSubstr("entry 'zeros.npy': is corrupt: its size is wrong"));
}

TEST(Npz, RejectsDamagedAndTruncatedFiles) {
    for (const char* name : {"stored.npz", "deflated.npz"}) {
        const std::string whole = read_file(npz_file(name));
        for (std::size_t n = 0; n < whole.size(); n += 11)
            EXPECT_NE(npz_error(whole.substr(0, n)), "no error") << name << ": " << n << " bytes";
        // The last byte of the data of x.npy precedes the local header of the next entry.
        std::string bytes = whole;
        bytes[bytes.find("PK\3\4", bytes.find("x.npy")) - 2] ^= 1;
        EXPECT_THAT(npz_error(bytes), HasSubstr("entry 'x.npy': is corrupt")) << name;
    }
    EXPECT_THAT(npz_error("\x93NUMPY"), HasSubstr("not a complete zip file"));
    EXPECT_THAT(npz_error(zip_of({{"a.txt", "text"}})),
                HasSubstr("entry 'a.txt': byte 0: not an .npy file"));
    expect_error<FileError>(
        {npz_file("bzip2.npz").c_str(), "entry 'a.npy': has the compression method 12"},
        [] { load_npz(npz_file("bzip2.npz")); });
    expect_error<FileError>({npz_file("repeated.npz").c_str(),
                             "entry 'a.npy': another entry contains an array of the same name"},
                            [] { load_npz(npz_file("repeated.npz")); });
    expect_error<FileError>({"/no/such/file: can't open"}, [] { load_npz("/no/such/file"); });
}

}  // namespace
}  // namespace axle::data
