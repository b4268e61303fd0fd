#include "data/images/image_folder.h"

#include <filesystem>
#include <string>
#include <vector>

#include "core/ops.h"
#include "data/composed_datasets.h"
#include "data/images/resize.h"
#include "data/loading/loader.h"
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

class ImageFolders : public testing::Test {
  protected:
    // Copies a recorded picture to a path in the folder.
    void add(const std::string& path, const std::string& name = "color.png") {
        const fs::path to(folder_ / path);
        fs::create_directories(to.parent_path());
        fs::copy_file(picture(name), to);
    }
    void add_text(const std::string& path) {
        fs::create_directories(fs::path(folder_ / path).parent_path());
        write_file_atomically(folder_ / path, "text", Durability::none);
    }
    // Returns the paths in the folder of all images, and their labels after a colon.
    std::vector<std::string> listed() const {
        std::vector<std::string> paths;
        const ImageFolder images(folder_.path());
        for (const auto& image : images.images())
            paths.push_back(str(image.path.substr(folder_.path().size() + 1), ":", image.label));
        return paths;
    }

    tests::TemporaryFolder folder_;
};
using Paths = std::vector<std::string>;

TEST_F(ImageFolders, ListsClassesAndImagesInTheOrderOfTorchvision) {
    for (const char* path : {"dog/2.png", "dog/10.PNG", "dog/a/1.jpeg", "dog/a b/1.png",
                             "dog/a/b/c.JpG", "Cat/x.png", "Cat/.png", "\xc3\xa9lan/1.png"})
        add(path);
    for (const char* path : {"readme.txt", "0.png", "dog/notes.txt", "dog/a/x.bmp", "dog/png"})
        add_text(path);
    EXPECT_EQ(ImageFolder(folder_.path()).classes(), (Paths{"Cat", "dog", "\xc3\xa9lan"}));
    EXPECT_EQ(listed(),
              (Paths{"Cat/.png:0", "Cat/x.png:0", "dog/10.PNG:1", "dog/2.png:1", "dog/a/1.jpeg:1",
                     "dog/a b/1.png:1", "dog/a/b/c.JpG:1", "\xc3\xa9lan/1.png:2"}));
}

TEST_F(ImageFolders, ReadsSamplesInTheModeOfTheOptions) {
    if (!tests::decodes_images()) GTEST_SKIP() << "this build has no libjpeg or no libpng";
    add("a/1.jpg", "gray.jpg");
    add("b/1.png");
    const ImageFolder images(folder_.path());
    ASSERT_EQ(images.size(), 2);
    const Tree sample = images.get(1);
    expect_same_bits(sample["image"].tensor(), tests::recorded("decoded.color.png.rgb"));
    EXPECT_EQ(sample["label"].tensor().dtype(), i64);
    EXPECT_EQ(sample["label"].tensor().item(), 1);
    const ImageFolder gray(folder_.path(), {.mode = ImageMode::gray});
    EXPECT_EQ(gray.get(1)["image"].tensor().shape(), (Shape{1, 13, 19}));
    expect_error<IndexError>({"ImageFolder: index 2 is out of range for 2 images"},
                             [&] { images.get(2); });
    expect_error<IndexError>({"ImageFolder: index -1 is"}, [&] { images.get(-1); });
    const auto shared = images.share();
    expect_same_bits(shared->get(1)["image"].tensor(), sample["image"].tensor());
}

TEST_F(ImageFolders, RejectsFoldersWithoutClassesAndClassesWithoutImages) {
    expect_error<FileError>({(folder_ / "none").c_str()},
                            [&] { ImageFolder images(folder_ / "none"); });
    add_text("readme.txt");
    expect_error<FileError>({("ImageFolder: " + folder_.path()).c_str(),
                             "there is no folder of a class: expected images in ", "/<class>/"},
                            [&] { ImageFolder images(folder_.path()); });
    add("a/1.png");
    add_text("b/1.txt");
    fs::create_directories(folder_ / "c/d");
    expect_error<FileError>({("ImageFolder: " + folder_.path()).c_str(),
                             "there is no image (.jpg, .jpeg or .png) of the classes 'b', 'c'"},
                            [&] { ImageFolder images(folder_.path()); });
}

TEST_F(ImageFolders, FollowsLinksToFilesInTheRootOnly) {
    const tests::TemporaryFolder outside;
    fs::copy_file(picture("color.png"), outside / "x.png");
    add("a/1.png");
    fs::create_symlink("../a/1.png", folder_ / "a/2.png");
    EXPECT_EQ(listed(), (Paths{"a/1.png:0", "a/2.png:0"}));
    fs::create_symlink(outside / "x.png", folder_ / "a/notes.txt");  // not an image
    EXPECT_EQ(listed().size(), 2u);
    const auto expect_refused = [&](const fs::path& target, const char* reason) {
        fs::create_symlink(target, folder_ / "a/link.png");
        expect_error<FileError>({"ImageFolder: ", "a/link.png", reason}, [&] { listed(); });
        fs::remove(folder_ / "a/link.png");
    };
    expect_refused(outside / "x.png", "the link leads out of the folder ");
    expect_refused(outside.path(), "links to folders are not followed");
    expect_refused("..", "links to folders are not followed");
    expect_refused("missing.png", "the link cannot be followed");
    fs::create_directory_symlink(outside.path(), folder_ / "b");
    expect_error<FileError>({"ImageFolder: ", "/b: links to folders are not followed"},
                            [&] { listed(); });
}

// The name of the root is a prefix of the name of the other folder.
TEST_F(ImageFolders, RejectsALinkToAFolderWhoseNameBeginsWithTheRoot) {
    add("data/a/1.png");
    add("data_private/1.png");
    fs::create_symlink("../../data_private/1.png", folder_ / "data/a/2.png");
    expect_error<FileError>({"ImageFolder: ", "data/a/2.png: the link leads out of the folder "},
                            [&] { ImageFolder images(folder_ / "data"); });
}

class ImageFolderLoader : public ImageFolders {
  protected:
    void SetUp() override {
        if (!tests::decodes_images()) GTEST_SKIP() << "this build has no libjpeg or no libpng";
        add("a/1.jpg", "full.jpg");
        add("a/2.png");
        add("b/1.jpg", "gray.jpg");
        // A picture of another size.
        fs::copy_file(picture("wide.png"), folder_ / "b/2.png");
    }
};

TEST_F(ImageFolderLoader, GivesTheSameBatchesWithAndWithoutWorkers) {
    const TransformedDataset images(
        ImageFolder(folder_.path()),
        Compose({RandomResizedCrop(8), RandomHorizontalFlip(), ToFloat()}), {.seed = 5});
    const auto epochs = [&](int workers) {
        DataLoader loader(images,
                          {.batch_size = 3, .shuffle = true, .num_workers = workers, .seed = 1});
        std::vector<std::vector<double>> all;
        for (int epoch = 0; epoch < 2; ++epoch)
            for (const Tree& batch : loader) {
                EXPECT_EQ(batch["image"].tensor().size(-1), 8);
                all.push_back(batch["image"].tensor().to_vector());
                all.push_back(batch["label"].tensor().to_vector());
            }
        return all;
    };
    const auto expected = epochs(0);
    EXPECT_EQ(expected.size(), 8u);
    EXPECT_NE(expected[0], expected[4]);  // epochs differ
    EXPECT_EQ(epochs(3), expected);
}

TEST_F(ImageFolderLoader, TransformsSamplesOfDifferentSizesAlsoInComposedDatasets) {
    const ImageFolder images(folder_.path());
    const Compose prepare({Resize(10), CenterCrop(8)});
    const Tree batch =
        TransformedDataset(images, prepare).get_batch(std::vector<std::int64_t>{3, 0});
    EXPECT_EQ(batch["image"].tensor().shape(), (Shape{2, 3, 8, 8}));
    const Tensor one = CenterCrop(8)(Resize(10)(images.get(3)["image"].tensor().unsqueeze(0)));
    expect_same_bits(batch["image"].tensor().narrow(0, 0, 1), one);
    EXPECT_EQ(batch["label"].tensor().to_vector(), (std::vector<double>{1, 0}));
    const Subset subset(images, {3, 0});
    const ConcatDataset both({images, images});
    const MapDataset mapped = map(images, [](Tree sample) { return sample; });
    const StackDataset stacked(
        {{"image", map(images, [](Tree sample) { return sample["image"]; })}});
    for (const Dataset* dataset : std::vector<const Dataset*>{&subset, &both, &mapped, &stacked}) {
        EXPECT_FALSE(dataset->has_uniform_shapes());
        const Tree made =
            TransformedDataset(*dataset, prepare).get_batch(std::vector<std::int64_t>{0, 1});
        EXPECT_EQ(made["image"].tensor().shape(), (Shape{2, 3, 8, 8}));
    }
}

TEST_F(ImageFolderLoader, RejectsABatchOfImagesOfDifferentSizesAndNamesTwo) {
    const ImageFolder images(folder_.path());
    expect_error<ShapeError>(
        {"ImageFolder: the images of a batch have different sizes: [3, 13, 19] (", "a/1.jpg",
         "and [3, 7, 31] (", "b/2.png", "apply a transform such as Resize({224, 224})"},
        [&] {
            images.get_batch(std::vector<std::int64_t>{0, 3});
        });
    EXPECT_EQ(images.get_batch(std::vector<std::int64_t>{0, 1})["image"].tensor().shape(),
              (Shape{2, 3, 13, 19}));
}

TEST_F(ImageFolderLoader, TransformsImagesOfDifferentSizesTwice) {
    const TransformedDataset flipped(ImageFolder(folder_.path()), RandomHorizontalFlip());
    const TransformedDataset resized(flipped, Resize({8, 8}));
    const Tree batch = resized.get_batch(std::vector<std::int64_t>{0, 3});
    EXPECT_EQ(batch["image"].tensor().shape(), (Shape{2, 3, 8, 8}));
}

TEST_F(ImageFolderLoader, NamesTheDamagedImageOfAWorker) {
    const std::string bytes = read_file(folder_ / "a/2.png");
    write_file_atomically(folder_ / "a/2.png", bytes.substr(0, 200), Durability::none);
    const TransformedDataset images(ImageFolder(folder_.path()), Compose({Resize({8, 8})}));
    DataLoader loader(images, {.batch_size = 4, .num_workers = 2});
    expect_error<FileError>({"", "sample 1", "a/2.png: PNG: the file is truncated"}, [&] {
        for (const Tree& batch : loader) static_cast<void>(batch);
    });
}

}  // namespace
}  // namespace axle::data
