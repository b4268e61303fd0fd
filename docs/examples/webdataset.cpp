// Writes tar archives of images and labels, and streams them.
#include <cstdio>
#include <fstream>
#include <string>

#include <axle/accel/tracking/png.h>
#include <axle/axle.h>
#include <axle/data/images/resize.h>
#include <axle/data/webdataset/web_dataset.h>

using axle::Tensor;
using axle::Tree;
namespace data = axle::data;

namespace {

void check(bool holds) {
    if (!holds) throw std::logic_error("check failed");
}

// Returns a file in a tar archive: a header and the contents, both in blocks of 512 bytes.
std::string member(const std::string& name, const std::string& contents) {
    std::string header(512, '\0');
    const auto put = [&](std::size_t at, const std::string& text) {
        header.replace(at, text.size(), text);
    };
    char digits[16];
    std::snprintf(digits, sizeof digits, "%011zo", contents.size());
    put(0, name);
    put(124, digits);
    put(148, "        ");
    put(156, "0");
    put(257, std::string("ustar\00000", 8));
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    std::snprintf(digits, sizeof digits, "%06o", sum);
    put(148, digits);
    return header + contents + std::string((512 - contents.size() % 512) % 512, '\0');
}

// Writes train-0.tar and train-1.tar, each with 24 gray images of different sizes.
void write_archives() {
    for (int archive = 0; archive < 2; ++archive) {
        std::ofstream file("train-" + std::to_string(archive) + ".tar", std::ios::binary);
        for (int i = 0; i < 24; ++i) {
            const int width = 20 + i, height = 40 - i, label = i % 3;
            std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * width * height),
                                             static_cast<std::uint8_t>(100 * label));
            const std::string key = std::to_string(i);
            file << member(key + ".png", axle::accel::encode_png(pixels, height, width, 3))
                 << member(key + ".cls", std::to_string(label));
        }
        file << std::string(1024, '\0');
    }
}

}  // namespace

int main() {
    write_archives();
    if (!data::can_decode(data::ImageFormat::png)) return 0;
    std::int64_t rows = 0;
    // [stream]
    const auto samples =
        data::stream_webdataset("train-{0..1}.tar", {.fields = {"png", "cls"}, .decode = false});
    const data::Compose transform({data::Resize({28, 28}), data::ToFloat()});
    const auto decode = [&](std::span<const Tree> batch) {
        std::vector<Tree> decoded;
        for (const Tree& encoded : batch) {
            const Tree sample = data::decode_webdataset_sample(encoded);
            const Tensor images = transform(sample["png"].tensor().unsqueeze(0), {});
            decoded.push_back({{"image", images[0]}, {"label", sample["cls"]}});
        }
        return data::collate(decoded);
    };
    data::DataLoader loader(samples, {.batch_size = 16, .num_workers = 2, .collate_fn = decode});
    for (auto& batch : loader) {
        check(batch["image"].shape() == axle::Shape{16, 3, 28, 28});
        rows += batch["label"].size(0);
    }
    // [/stream]
    check(rows == 48);
}
