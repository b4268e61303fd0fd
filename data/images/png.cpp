#include "data/images/decoders.h"

#ifdef AXLE_HAS_PNG
#include <array>
#include <csetjmp>
#include <cstring>
#include <new>
#include <vector>

#include <png.h>

namespace axle::data {
namespace {

// The names of chunks that do not change the pixels, each followed by a 0. libpng skips them;
// otherwise it would decompress some of them.
constexpr png_byte kIgnoredChunks[] =
    "eXIf\0"
    "hIST\0"
    "iCCP\0"
    "iTXt\0"
    "pHYs\0"
    "sPLT\0"
    "tEXt\0"
    "tIME\0"
    "zTXt";

// One image that libpng decodes. libpng reports an error by a jump to the last call of guarded(),
// which must not skip destructors: a step changes only members and local numbers.
class PngDecoder {
  public:
    explicit PngDecoder(const EncodedImage& image) : image_(image) {}
    ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
    PngDecoder(const PngDecoder&) = delete;
    PngDecoder& operator=(const PngDecoder&) = delete;

    Tensor decode();

  private:
    static void fail(png_structp png, png_const_charp message);
    static void read(png_structp png, png_bytep to, std::size_t count);

    template <class Step>
    void guarded(Step step);
    void read_header();
    void set_conversions();
    void read_pixels();

    EncodedImage image_;
    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    std::size_t at_ = 0;
    std::array<char, 200> message_{};
    Tensor pixels_;
    int passes_ = 1;
    std::vector<std::uint8_t> rows_;
};

void PngDecoder::fail(png_structp png, png_const_charp message) {
    PngDecoder& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::strncpy(self.message_.data(), message, self.message_.size() - 1);
    png_longjmp(png, 1);
}

void PngDecoder::read(png_structp png, png_bytep to, std::size_t count) {
    PngDecoder& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (count > self.image_.bytes.size() - self.at_) png_error(png, "the file is truncated");
    std::memcpy(to, self.image_.bytes.data() + self.at_, count);
    self.at_ += count;
}

template <class Step>
void PngDecoder::guarded(Step step) {
    if (setjmp(png_jmpbuf(png_)) != 0) {  // NOLINT(cert-err52-cpp): the only way out of libpng
        if (std::strcmp(message_.data(), "Out of memory") == 0) throw std::bad_alloc();
        throw_damaged(image_, "PNG", message_.data());
    }
    step();
}

void PngDecoder::read_header() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail,
                                  [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) throw std::bad_alloc();
    guarded([this] {
        png_set_read_fn(png_, this, read);
        png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // max_pixels is the limit
        png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kIgnoredChunks,
                                    sizeof kIgnoredChunks / 5);
        png_read_info(png_, info_);
    });
}

// Requests 8 bits per channel, without alpha, in the channels of the mode.
void PngDecoder::set_conversions() {
    guarded([this] {
        const bool color = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) != 0;
        const bool gray = image_.options.mode == ImageMode::gray;
        png_set_strip_16(png_);
        png_set_expand(png_);
        png_set_strip_alpha(png_);
        if (color && gray) png_set_rgb_to_gray(png_, PNG_ERROR_ACTION_NONE, 0.2989, 0.587);
        if (!color && !gray) png_set_gray_to_rgb(png_);
        passes_ = png_set_interlace_handling(png_);
        png_read_update_info(png_, info_);
    });
}

// Each pass of an interlaced image changes some pixels of all rows, so that all rows are kept.
void PngDecoder::read_pixels() {
    const std::size_t height = passes_ == 1 ? 1 : static_cast<std::size_t>(pixels_.size(1));
    rows_.resize(height * png_get_rowbytes(png_, info_));
    guarded([this] {
        const std::int64_t rows = pixels_.size(1);
        const std::size_t bytes = png_get_rowbytes(png_, info_);
        for (int pass = 0; pass < passes_; ++pass)
            for (std::int64_t y = 0; y < rows; ++y) {
                std::uint8_t* row =
                    rows_.data() + (passes_ == 1 ? 0 : static_cast<std::size_t>(y) * bytes);
                png_read_row(png_, row, nullptr);
                if (pass + 1 == passes_) store_row(row, y, pixels_);
            }
        png_read_end(png_, nullptr);
    });
}

Tensor PngDecoder::decode() {
    read_header();
    const Size2 size(png_get_image_height(png_, info_), png_get_image_width(png_, info_));
    check_size(image_, "PNG", size);
    pixels_ = pixels_for(image_, size);
    set_conversions();
    if (static_cast<std::int64_t>(png_get_rowbytes(png_, info_)) !=
        pixels_.size(0) * pixels_.size(2))
        throw_damaged(image_, "PNG", "the color type is not supported");
    read_pixels();
    return pixels_;
}

}  // namespace

Tensor decode_png(const EncodedImage& image) { return PngDecoder(image).decode(); }
bool has_png() { return true; }

}  // namespace axle::data
#else
namespace axle::data {

Tensor decode_png(const EncodedImage& image) { throw_no_decoder(image, "PNG", "libpng-dev"); }
bool has_png() { return false; }

}  // namespace axle::data
#endif
