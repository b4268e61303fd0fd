// Tests that images of which only a window is decoded have the pixels of whole images.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/ops.h"
#include "data/composed_datasets.h"
#include "data/images/image_folder.h"
#include "data/images/resize.h"
#include "data/transforms.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/images/pictures.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

namespace fs = std::filesystem;
using tests::expect_error;
using tests::expect_same_bits;
using tests::picture;

const std::vector<std::string> kLarge = {
    "large_444.jpg",         "large_422.jpg",  "large_420.jpg",  "large_restarts.jpg",
    "large_progressive.jpg", "large_gray.jpg", "large_cmyk.jpg", "color.png"};

class ImageWindows : public testing::Test {
  protected:
    void SetUp() override {
        if (!tests::decodes_images()) GTEST_SKIP() << "this build has no libjpeg or no libpng";
        for (const std::string& name : kLarge) {
            fs::create_directories(folder_ / name);
            fs::copy_file(picture(name), folder_ / name + "/" + name);
        }
    }

    tests::TemporaryFolder folder_{tests::FolderStorage::in_memory};
};

// Returns the pixels of a window of image i.
Tensor window_of(const Dataset& images, std::int64_t i, const ImageWindow& window) {
    return (*images.get_window(i, "image", [&](Size2) { return window; }))["image"].tensor();
}

TEST_F(ImageWindows, HaveThePixelsOfWholeImages) {
    for (const auto mode : {ImageMode::rgb, ImageMode::gray}) {
        const ImageFolder images(folder_.path(), {.mode = mode});
        for (std::int64_t i = 0; i < images.size(); ++i) {
            SCOPED_TRACE(images.images()[static_cast<std::size_t>(i)].path);
            const Tensor whole = images.get(i)["image"].tensor();
            const std::int64_t height = whole.size(1), width = whole.size(2);
            for (std::int64_t top = 0; top < height; top += 3)
                for (std::int64_t left = 0; left < width; left += 5)
                    for (const Size2 size : {Size2(1), Size2(height - top, width - left),
                                             Size2((height - top + 1) / 2, (width - left) / 3)}) {
                        if (size.w < 1) continue;
                        const Tensor window = window_of(images, i, {top, left, size});
                        const Tensor expected =
                            whole.narrow(1, top, size.h).narrow(2, left, size.w);
                        ASSERT_EQ(window.shape(), expected.shape());
                        ASSERT_TRUE(equal(window, expected))
                            << size << " at " << top << ", " << left;
                    }
        }
    }
}

TEST_F(ImageWindows, AreReadByTransformsThatBeginWithRandomResizedCrop) {
    // A dataset that counts its calls, and that hides get_window() if `hides` is true.
    class Counted : public Dataset {
      public:
        Counted(const ImageFolder& images, bool hides) : images_(images), hides_(hides) {}
        std::int64_t size() const override { return images_.size(); }
        Tree get(std::int64_t index) const override { return images_.get(index); }
        bool has_uniform_shapes() const override { return false; }
        std::optional<Tree> get_window(std::int64_t index, const std::string& key,
                                       const ChooseWindow& choose) const override {
            if (hides_) return std::nullopt;
            ++windows;
            return images_.get_window(index, key, choose);
        }
        mutable int windows = 0;

      private:
        const ImageFolder& images_;
        bool hides_;
    };
    const ImageFolder images(folder_.path());
    const Counted windows(images, false), whole(images, true);
    const RandomResizedCrop crop({17, 23});
    const Transform transforms[] = {crop, Compose({crop}),
                                    Compose({crop, RandomHorizontalFlip(), ToFloat()})};
    for (const Transform& transform : transforms) {
        windows.windows = 0;
        const Subset all(windows, {7, 6, 5, 4, 3, 2, 1, 0}), same(whole, {7, 6, 5, 4, 3, 2, 1, 0});
        const TransformedDataset actual(all, transform, {.seed = 3});
        const TransformedDataset expected(same, transform, {.seed = 3});
        for (const std::int64_t epoch : {0, 1}) {
            const auto samples = actual.in_epoch(epoch);
            for (std::int64_t i = 0; i < all.size(); ++i) {
                const Tree sample = expected.in_epoch(epoch)->get(i);
                expect_same_bits(samples->get(i)["image"].tensor(), sample["image"].tensor());
                EXPECT_EQ(samples->get(i)["label"].tensor().item(),
                          sample["label"].tensor().item());
            }
        }
        EXPECT_EQ(windows.windows, 4 * all.size());
    }
}

TEST_F(ImageWindows, AreNotReadFromClassesThatOverrideGet) {
    class Relabeled : public ImageFolder {
      public:
        using ImageFolder::ImageFolder;
        Tree get(std::int64_t index) const override {
            Tree sample = ImageFolder::get(index);
            sample["label"] = full({}, 42, {.dtype = i64});
            return sample;
        }
    };
    class Relabeling : public Subset {
      public:
        using Subset::Subset;
        Tree get(std::int64_t index) const override {
            Tree sample = Subset::get(index);
            sample["label"] = full({}, 43, {.dtype = i64});
            return sample;
        }
    };
    const Relabeled images(folder_.path());
    const Relabeling some(ImageFolder(folder_.path()), {1});
    const RandomResizedCrop crop(8);
    EXPECT_EQ(TransformedDataset(images, crop).get(1)["label"].tensor().item(), 42);
    EXPECT_EQ(TransformedDataset(some, crop).get(0)["label"].tensor().item(), 43);
}

TEST_F(ImageWindows, AreRejectedIfTheImageIsTruncated) {
    for (const std::string name :
         {"large_420.jpg", "large_restarts.jpg", "large_progressive.jpg"}) {
        SCOPED_TRACE(name);
        const std::string bytes = read_file(picture(name));
        for (const std::size_t length : {bytes.size() / 4, bytes.size() / 2, bytes.size() - 2}) {
            const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
            fs::create_directories(folder / "a");
            write_file_atomically(folder / "a/1.jpg", bytes.substr(0, length), Durability::none);
            const ImageFolder images(folder.path());
            for (const std::int64_t top : {0, 40, 74})
                expect_error<FileError>(
                    {(folder / "a/1.jpg").c_str(), "JPEG: the file is truncated"}, [&] {
                        window_of(images, 0, {top, 0, {1, 91}});
                    });
        }
    }
}

}  // namespace
}  // namespace axle::data
