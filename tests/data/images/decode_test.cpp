#include "data/images/decode.h"

#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/images/pictures.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::expect_same_bits;
using tests::picture;
using tests::recorded;

const std::vector<std::string> kJpegs = {"subsampled.jpg", "full.jpg", "progressive.jpg",
                                         "gray.jpg",       "cmyk.jpg", "rotated.jpg"};
const std::vector<std::string> kPngs = {
    "color.png",           "wide.png",       "alpha.png",
    "palette.png",         "gray.png",       "gray_alpha.png",
    "black_and_white.png", "interlaced.png", "sixteen_bits.png"};

class DecodeImage : public testing::Test {
  protected:
    void SetUp() override {
        if (!tests::decodes_images()) GTEST_SKIP() << "this build has no libjpeg or no libpng";
    }
};

// Decodes bytes from an allocation of exactly their size, so that sanitizers detect reads out of
// bounds.
Tensor decode(const std::string& bytes, const DecodeOptions& options = {}) {
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    const std::vector<std::byte> exact(first, first + bytes.size());
    return decode_image(exact, "a\nfile", options);
}

// Returns the message of the FileError for these bytes, or "no error".
std::string error_of(const std::string& bytes, const DecodeOptions& options = {}) {
    try {
        decode(bytes, options);
    } catch (const FileError& error) {
        EXPECT_EQ(std::string(error.what()).rfind("a\\x0afile: ", 0), 0u) << error.what();
        return error.what();
    }
    return "no error";
}

TEST_F(DecodeImage, GivesThePixelsOfPillowAndTorchvisionForPng) {
    for (const std::string& name : kPngs) {
        SCOPED_TRACE(name);
        expect_same_bits(read_image(picture(name)), recorded("decoded." + name + ".rgb"));
        if (name != "sixteen_bits.png")  // torchvision keeps 16 bits
            expect_same_bits(read_image(picture(name), {.mode = ImageMode::gray}),
                             recorded("decoded." + name + ".gray"));
    }
}

// The versions of libjpeg-turbo compute the same pixels for images without fractional sampling
// factors; 2 levels are left for builds whose SIMD code rounds in another way.
TEST_F(DecodeImage, GivesThePixelsOfPillowAndTorchvisionForJpegUpToTwoLevels) {
    for (const std::string& name : kJpegs) {
        SCOPED_TRACE(name);
        for (const auto& [mode, kind] :
             {std::pair(ImageMode::rgb, ".rgb"), {ImageMode::gray, ".gray"}}) {
            const Tensor pixels = read_image(picture(name), {.mode = mode});
            const Tensor expected = recorded("decoded." + name + kind);
            ASSERT_EQ(pixels.shape(), expected.shape());
            EXPECT_EQ(pixels.dtype(), u8);
            EXPECT_LE(abs(pixels.to(f32) - expected.to(f32)).max().item(), 2) << kind;
        }
    }
}

TEST_F(DecodeImage, IgnoresTheOrientationOfExif) {
    const std::string bytes = read_file(picture("rotated.jpg"));
    ASSERT_NE(bytes.find("Exif"), std::string::npos);
    expect_same_bits(decode(bytes), read_image(picture("subsampled.jpg")));
}

TEST_F(DecodeImage, RecognizesTheFormatByItsFirstBytesAndNotByItsName) {
    const std::string bytes = read_file(picture("color.png"));
    const auto span = std::as_bytes(std::span(bytes));
    expect_same_bits(decode_image(span, "image.jpg"), read_image(picture("color.png")));
}

TEST_F(DecodeImage, RejectsEveryTruncatedImage) {
    for (const auto& names : {kJpegs, kPngs})
        for (const std::string& name : names) {
            const std::string bytes = read_file(picture(name));
            ASSERT_EQ(error_of(bytes), "no error") << name;
            for (std::size_t n = 0; n < bytes.size(); ++n)
                EXPECT_NE(error_of(bytes.substr(0, n)), "no error")
                    << name << ", " << n << " bytes";
        }
    const std::string jpeg = read_file(picture("full.jpg")), png = read_file(picture("gray.png"));
    EXPECT_EQ(error_of(jpeg.substr(0, jpeg.size() - 20)),
              "a\\x0afile: JPEG: the file is truncated");
    // All pixels are there, but a comment after them is not.
    EXPECT_EQ(error_of(jpeg.substr(0, jpeg.size() - 2) + "\xff\xfe\x10text"),
              "a\\x0afile: JPEG: the file is truncated");
    EXPECT_EQ(error_of(png.substr(0, png.size() - 20)), "a\\x0afile: PNG: the file is truncated");
    EXPECT_EQ(error_of(""), "a\\x0afile: not a JPEG or PNG image: the file is empty");
    EXPECT_EQ(error_of("GIF89a"),
              "a\\x0afile: not a JPEG or PNG image: its first bytes are those of neither");
}

TEST_F(DecodeImage, RejectsEveryPngWithADamagedByteOfItsPixels) {
    for (const char* name : {"color.png", "interlaced.png"}) {
        const std::string bytes = read_file(picture(name));
        const std::size_t data = bytes.find("IDAT");
        for (std::size_t at = data; at < bytes.size(); ++at) {
            std::string damaged = bytes;
            damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
            EXPECT_NE(error_of(damaged), "no error") << name << ", byte " << at;
        }
    }
}

TEST_F(DecodeImage, SurvivesChangesOfEachByte) {
    for (const char* name : {"subsampled.jpg", "progressive.jpg", "cmyk.jpg", "palette.png"}) {
        const std::string bytes = read_file(picture(name));
        int accepted = 0;
        for (std::size_t at = 0; at < bytes.size(); ++at)
            for (const int flip : {0x01, 0x80, 0xff}) {
                std::string damaged = bytes;
                damaged[at] = static_cast<char>(damaged[at] ^ flip);
                accepted += error_of(damaged, {.max_pixels = 100000}) == "no error";
            }
        EXPECT_GT(accepted, 0) << name;  // some bytes are comments, or change pixels only
    }
}

TEST_F(DecodeImage, RejectsMorePixelsOrBytesThanTheLimits) {
    const std::string jpeg = read_file(picture("gray.jpg")), png = read_file(picture("gray.png"));
    for (const std::string& bytes : {jpeg, png}) {
        EXPECT_EQ(error_of(bytes, {.max_pixels = 13 * 19}), "no error");
        const std::string error = error_of(bytes, {.max_pixels = 13 * 19 - 1});
        EXPECT_NE(error.find("an image of height 13 and width 19 has more pixels than max_pixels = "
                             "246"),
                  std::string::npos)
            << error;
    }
    const auto size = static_cast<std::int64_t>(png.size());
    EXPECT_EQ(error_of(png, {.max_bytes = size}), "no error");
    EXPECT_NE(error_of(png, {.max_bytes = size - 1}).find("more than max_bytes = "),
              std::string::npos);
    expect_error<FileError>({picture("gray.png").c_str()},
                            [&] { read_image(picture("gray.png"), {.max_bytes = size - 1}); });
    expect_error<ValueError>({"decode_image: max_pixels and max_bytes must be positive: 0 and"},
                             [&] { decode(png, {.max_pixels = 0}); });
    expect_error<ValueError>({"decode_image: max_pixels and max_bytes must be positive"},
                             [&] { read_image("none", {.max_bytes = -1}); });
}

// The header of the first file announces 60000 x 60000 pixels, and the header of the second file
// (2^31 - 1) x (2^31 - 1).
TEST_F(DecodeImage, RejectsDecompressionBombsByTheirHeaderWithTheDefaultLimit) {
    std::string jpeg = read_file(picture("gray.jpg")), png = read_file(picture("gray.png"));
    const std::size_t frame = jpeg.find("\xff\xc0");
    ASSERT_NE(frame, std::string::npos);
    jpeg.replace(frame + 5, 4, "\xea\x60\xea\x60");
    EXPECT_NE(error_of(jpeg).find("height 60000 and width 60000 has more pixels than max_pixels = "
                                  "178956970"),
              std::string::npos)
        << error_of(jpeg);
    png.replace(16, 8, "\x7f\xff\xff\xff\x7f\xff\xff\xff");
    png.replace(29, 4, "\x31\xa2\x54\xba");  // the right checksum of this header
    EXPECT_NE(error_of(png).find("height 2147483647 and width 2147483647 has more pixels"),
              std::string::npos)
        << error_of(png);
}

// A repeated scan is a few bytes, but takes as long as an image.
TEST_F(DecodeImage, RejectsMoreThan100Scans) {
    const std::string bytes = read_file(picture("progressive.jpg"));
    const std::size_t scan = bytes.find("\xff\xda");
    std::size_t end = scan + 2;
    while (bytes[end] != '\xff' || bytes[end + 1] == '\0') ++end;
    const auto with_scans = [&](int count) {
        std::string repeated;
        for (int i = 0; i < count; ++i) repeated += bytes.substr(scan, end - scan);
        return bytes.substr(0, scan) + repeated + bytes.substr(end);
    };
    EXPECT_EQ(error_of(with_scans(80)), "no error");
    EXPECT_EQ(error_of(with_scans(101)), "a\\x0afile: JPEG: the image has more than 100 scans");
}

TEST_F(DecodeImage, NamesAFileThatCannotBeRead) {
    const tests::TemporaryFolder folder;
    expect_error<FileError>({(folder / "none.jpg").c_str()},
                            [&] { read_image(folder / "none.jpg"); });
}

TEST(DecodeImageWithoutLibraries, NamesThePackageOfTheMissingLibrary) {
    const auto check = [](ImageFormat format, const char* file, const char* package) {
        const std::string path = picture(file);
        if (can_decode(format)) {
            EXPECT_NO_THROW(read_image(path));
        } else {
            expect_error<UsageError>({path.c_str(), "cannot decode", package},
                                     [&] { read_image(path); });
        }
    };
    check(ImageFormat::jpeg, "gray.jpg", "install libjpeg-dev");
    check(ImageFormat::png, "gray.png", "install libpng-dev");
}

}  // namespace
}  // namespace axle::data
