#include "data/files/idx.h"

#include <cstdlib>
#include <fstream>

#include "core/files/file.h"
#include "core/ops.h"
#include "data/files/mnist.h"
#include "tests/close.h"
#include "tests/data/files/damage.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::golden_image;
using tests::parse_error;
using Values = std::vector<double>;

const auto kParse = [](std::span<const std::byte> bytes, const std::string& name) {
    parse_idx(bytes, name, {.max_inflated = 1 << 20});
};

std::string big_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
    return text;
}

std::string little_endian(std::uint64_t value, int bytes) {
    const std::string big = big_endian(value, bytes);
    return {big.rbegin(), big.rend()};
}

std::string idx(int type, const std::vector<std::uint32_t>& sizes, const std::string& elements) {
    std::string text = big_endian(static_cast<unsigned>(type), 3) +
                       static_cast<char>(static_cast<unsigned char>(sizes.size()));
    for (const std::uint32_t size : sizes) text += big_endian(size, 4);
    return text + elements;
}

std::uint32_t crc_of(const std::string& bytes) {
    std::uint32_t crc = ~0u;
    for (const char c : bytes) {
        crc ^= static_cast<unsigned char>(c);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

// Returns a gzip file of one member with one stored block.
std::string gzipped(const std::string& bytes) {
    const auto length = static_cast<std::uint16_t>(bytes.size());
    return std::string("\x1f\x8b\x08\0\0\0\0\0\0\xff\1", 11) + little_endian(length, 2) +
           little_endian(static_cast<std::uint16_t>(~length), 2) + bytes +
           little_endian(crc_of(bytes), 4) + little_endian(length, 4);
}

Tensor parsed(const std::string& bytes) {
    return parse_idx(std::as_bytes(std::span(bytes)), "memory");
}

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Idx, ReadsEveryDTypeAndUpToEightDimensions) {
    const Tensor bytes = parsed(idx(0x08, {2, 3}, "\1\2\3\4\5\xff"));
    EXPECT_EQ(bytes.dtype(), u8);
    EXPECT_EQ(bytes.shape(), (Shape{2, 3}));
    EXPECT_EQ(bytes.to_vector(), (Values{1, 2, 3, 4, 5, 255}));
    EXPECT_EQ(parsed(idx(0x0c, {2}, big_endian(1, 4) + big_endian(0xfffffffe, 4))).to_vector(),
              (Values{1, -2}));
    EXPECT_EQ(parsed(idx(0x0d, {1, 1, 2}, big_endian(0x3fc00000, 4) + big_endian(0xc0000000, 4)))
                  .to_vector(),
              (Values{1.5, -2}));
    const Tensor wide = parsed(idx(0x0e, {1}, big_endian(0x3ff8000000000000, 8)));
    EXPECT_EQ(wide.dtype(), f64);
    EXPECT_EQ(wide.item(), 1.5);
    const Tensor small = parsed(idx(0x09, {1}, "\xff"));
    EXPECT_EQ(small.dtype(), DType::i8);
    EXPECT_EQ(*static_cast<const std::int8_t*>(small.raw_data()), -1);
    const Tensor middle = parsed(idx(0x0b, {1}, "\xff\xfe"));
    EXPECT_EQ(middle.dtype(), DType::i16);
    EXPECT_EQ(*static_cast<const std::int16_t*>(middle.raw_data()), -2);
    EXPECT_EQ(parsed(idx(0x08, {}, "\7")).shape(), Shape{});
    EXPECT_EQ(parsed(idx(0x08, {1, 1, 1, 1, 1, 1, 1, 1}, "\7")).dim(), 8);
    EXPECT_EQ(parsed(idx(0x0e, {0xffffffff, 0}, "")).numel(), 0);
}

TEST(Idx, ReadsGzipFilesOfOneOrSeveralMembers) {
    const std::string file = idx(0x08, {3}, "abc");
    EXPECT_EQ(parsed(gzipped(file)).to_vector(), (Values{97, 98, 99}));
    // A gzip file can have several members.
    EXPECT_EQ(
        parsed(gzipped(file.substr(0, 9)) + gzipped("") + gzipped(file.substr(9))).to_vector(),
        (Values{97, 98, 99}));
    const Tensor digits = read_idx(golden_image("train-images-idx3-ubyte.gz"));
    EXPECT_EQ(digits.shape(), (Shape{40, 28, 28}));
    EXPECT_EQ(digits[0].sum().item(), 24359);
    EXPECT_EQ(digits[1].sum().item(), 30769);
}

TEST(Idx, RejectsTruncatedAndExtendedFiles) {
    tests::expect_only_complete_files(idx(0x0b, {2, 2}, "abcdefgh"), kParse);
    tests::expect_only_complete_files(gzipped(idx(0x0b, {2, 2}, "abcdefgh")), kParse);
    tests::expect_only_complete_files(read_file(golden_image("train-labels-idx1-ubyte.gz")),
                                      kParse);
}

TEST(Idx, RejectsFlippedBytesOfTheHeader) {
    const std::string plain = idx(0x0b, {2, 3}, "abcdefghijkl");
    EXPECT_EQ(tests::count_accepted_flips(plain, 0, 12, kParse), 0);
}

TEST(Idx, ReadsCorrectElementsIfCorruptGzipFileIsAccepted) {
    const std::string labels = read_file(golden_image("train-labels-idx1-ubyte.gz"));
    const Tensor expected = parsed(labels);
    const int accepted = tests::count_accepted_flips(
        labels, 0, labels.size(), [&](std::span<const std::byte> bytes, const std::string& name) {
            tests::expect_same_bits(parse_idx(bytes, name, {.max_inflated = 1 << 20}), expected);
        });
    // Some header fields, for example the date, and the unused bits of the last byte are not
    // checked.
    EXPECT_LT(accepted, 100);
}

TEST(Idx, ReportsOffsetAndReasonForInvalidFiles) {
    const auto expect_message = [](const std::string& bytes, const char* reason) {
        const std::string text = parse_error(bytes, kParse);
        EXPECT_NE(text.find(reason), std::string::npos) << text;
    };
    expect_message("", "byte 0: the magic number is truncated: got 0 of 4 bytes");
    expect_message("PK\3\4", "byte 0: not an idx file");
    expect_message(idx(0x0a, {1}, "a"),
                   "byte 2: the type code must be 8, 9, 11, 12, 13 or 14: it is 10");
    expect_message(big_endian(0x0809, 4), "byte 3: at most 8 dimensions are supported, not 9");
    expect_message(idx(0x08, {7}, "").substr(0, 6),
                   "byte 6: the list of sizes is truncated: got 2 of 4 bytes");
    expect_message(idx(0x08, {7}, "abc"),
                   "byte 4: [7] of uint8 needs 7 bytes, but at most 3 follow");
    expect_message(idx(0x08, {2}, "abc"),
                   "byte 10: unexpected bytes after the last element of [2]");
    const std::uint32_t max_size = 0xffffffff;
    expect_message(idx(0x0e, {max_size, max_size, max_size}, "a"),
                   "byte 4: the number of bytes overflows int64: [4294967295, ");

    std::string corrupt = gzipped(idx(0x08, {3}, "abc"));
    expect_message(corrupt.substr(0, corrupt.size() - 1), "the gzip data are truncated");
    expect_message(corrupt + "x", "byte 34: unexpected bytes after the gzip data");
    corrupt[24] ^= 1;
    expect_message(corrupt, "the gzip data are corrupt: incorrect data check");
    expect_message(gzipped(idx(0x08, {7}, "abc")),
                   "byte 11: the list of elements is truncated: got 3 of 7 bytes");
    expect_message(gzipped(idx(0x08, {2}, "abc")),
                   "byte 10: unexpected bytes after the last element");
}

TEST(Idx, RejectsSizesBeyondDataOrLimit) {
    // The header declares 60 GB of data.
    const std::string false_header = idx(0x08, {60'000, 1'000, 1'000}, "abc");
    EXPECT_NE(
        parse_error(false_header, kParse).find("needs 60000000000 bytes, but at most 3 follow"),
        std::string::npos);
    EXPECT_NE(
        parse_error(gzipped(false_header), kParse).find("needs 60000000000 bytes, but at most"),
        std::string::npos);
    const std::string valid_file = gzipped(idx(0x08, {1 << 10}, std::string(1 << 10, 'a')));
    EXPECT_EQ(parse_error(valid_file, kParse), "no error");
    expect_error<FileError>(
        {"memory: byte 4: ", "needs 1024 bytes, more than max_inflated: 1023", "decompress"},
        [&] { parse_idx(std::as_bytes(std::span(valid_file)), "memory", {.max_inflated = 1023}); });
}

TEST(Idx, ThrowsFileErrorForMissingFilesEmptyFilesAndFolders) {
    expect_error<FileError>({"/no/such/file: can't open"}, [] { read_idx("/no/such/file"); });
    const tests::TemporaryFolder folder;
    write_file(folder / "empty", "");
    EXPECT_THROW(read_idx(folder / "empty"), FileError);
    EXPECT_THROW(read_idx(folder.path()), FileError);
}

TEST(Mnist, ReadsPlainAndGzipFiles) {
    const std::string folder = golden_image("");
    const TensorDataset train = mnist(folder);
    ASSERT_EQ(train.size(), 40);
    const Tree sample = train.get(1);
    EXPECT_EQ(sample["image"].tensor().shape(), (Shape{1, 28, 28}));
    EXPECT_EQ(sample["image"].tensor().dtype(), u8);
    EXPECT_EQ(sample["image"].tensor().sum().item(), 30769);
    EXPECT_EQ(sample["label"].tensor().dtype(), i64);
    const std::vector<std::int64_t> first = {0, 1, 2, 3};
    EXPECT_EQ(train.get_batch(first)["label"].tensor().to_vector(), (Values{9, 0, 2, 5}));
    EXPECT_EQ(mnist(folder, false).get_batch(first)["label"].tensor().to_vector(),
              (Values{3, 9, 8, 3}));
}

TEST(Mnist, RejectsFoldersWithMissingOrInvalidFiles) {
    const tests::TemporaryFolder folder;
    const std::string images = folder / "train-images-idx3-ubyte";
    const std::string labels = folder / "train-labels-idx1-ubyte";
    const auto read = [&] { mnist(folder.path()); };
    expect_error<FileError>({folder.path().c_str(), "neither train-images-idx3-ubyte nor"}, read);
    write_file(images, idx(0x08, {2, 28, 28}, std::string(2 * 28 * 28, 'x')));
    expect_error<FileError>({folder.path().c_str(), "train-labels-idx1-ubyte.gz"}, read);
    write_file(labels, idx(0x08, {2}, "\1\x0a"));
    expect_error<FileError>({labels.c_str(), "byte 9: label must be at most 9: 10"}, read);
    write_file(labels, idx(0x08, {3}, "\1\2\3"));
    expect_error<FileError>(
        {labels.c_str(),
         "byte 4: the number of labels must be the number of images: 3 labels, 2 images in"},
        read);
    write_file(labels, idx(0x0c, {1}, big_endian(1, 4)));
    expect_error<FileError>({labels.c_str(), "expected a 1-d array of uint8 labels, not int32 [1]"},
                            read);
    write_file(images, idx(0x08, {2, 28}, std::string(2 * 28, 'x')));
    expect_error<FileError>(
        {images.c_str(), "byte 0: expected uint8 images of 28 x 28, not uint8 [2, 28]"}, read);
}

TEST(Mnist, ReadsTheOriginalFiles) {
    const char* data = std::getenv("AXLE_DATA");
    if (data == nullptr) GTEST_SKIP() << "set AXLE_DATA to a folder that contains mnist/";
    for (const bool train : {true, false}) {
        const TensorDataset digits = mnist(std::string(data) + "/mnist", train);
        std::vector<std::int64_t> all(static_cast<std::size_t>(digits.size()));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
        const Tree batch = digits.get_batch(all);
        EXPECT_NEAR(batch["image"].tensor().to(f32).mean().item() / 255, 0.1307, 0.005);
        const Tensor seen = one_hot(batch["label"], 10).to(f32).mean({0});
        EXPECT_GT(seen.min().item(), 0.07);
        EXPECT_LT(seen.max().item(), 0.13);
    }
}

}  // namespace
}  // namespace axle::data
