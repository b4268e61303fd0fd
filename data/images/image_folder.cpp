#include "data/images/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "core/files/file.h"
#include "core/files/folder.h"
#include "core/ops.h"
#include "data/images/decoders.h"
#include "data/loading/collate.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

namespace fs = std::filesystem;

bool is_image_name(std::string name) {
    for (char& c : name)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    for (const std::string_view ending : {".jpg", ".jpeg", ".png"})
        if (name.ends_with(ending)) return true;
    return false;
}

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
    throw FileError(str("ImageFolder: ", printable(path), ": ", reason));
}

// Returns the path without symbolic links.
fs::path resolved(const std::string& path) {
    std::error_code error;
    fs::path result = fs::canonical(path, error);
    if (error) fail(path, str("the link cannot be followed: ", error.message()));
    return result;
}

// The folder of an image, and its name. Pairs are sorted as torchvision sorts the images: by
// folder, then by name.
using FolderAndName = std::pair<std::string, std::string>;

// Lists the images of the classes in a folder.
class Scan {
  public:
    explicit Scan(const std::string& root) : root_(root) {}

    std::vector<std::string> classes() const {
        std::vector<std::string> names;
        for (const std::string& name : list_folder(root_))
            if (is_folder(inside(root_, name))) names.push_back(name);
        return names;
    }
    // Returns the images in the folder of a class, in order.
    std::vector<FolderAndName> images(const std::string& name) const {
        std::vector<FolderAndName> found;
        std::vector<std::string> folders = {inside(root_, name)};
        while (!folders.empty()) {
            const std::string folder = std::move(folders.back());
            folders.pop_back();
            for (const std::string& entry : list_folder(folder)) {
                const std::string path = inside(folder, entry);
                if (is_folder(path)) {
                    folders.push_back(path);
                } else if (is_image_name(entry)) {
                    check_image(path);
                    found.emplace_back(folder, entry);
                }
            }
        }
        std::sort(found.begin(), found.end());
        return found;
    }

    static std::string inside(const std::string& folder, const std::string& name) {
        return folder.ends_with('/') ? folder + name : folder + "/" + name;
    }

  private:
    // Returns whether a path is a folder. Throws FileError for a link to a folder: its images are
    // in the root already or must not be read, and links can form a loop.
    static bool is_folder(const std::string& path) {
        const auto kind = kind_of(path);
        std::error_code ignored;
        if (kind == FileKind::link && fs::is_directory(path, ignored))
            fail(path, "links to folders are not followed");
        return kind == FileKind::folder;
    }
    // Throws FileError if the path is a link to a file outside of the root.
    void check_image(const std::string& path) const {
        if (kind_of(path) != FileKind::link) return;
        const fs::path root = resolved(root_), target = resolved(path);
        if (std::mismatch(root.begin(), root.end(), target.begin(), target.end()).first !=
            root.end())
            fail(path, str("the link leads out of the folder ", printable(root_)));
    }

    const std::string& root_;
};

}  // namespace

ImageFolder::ImageFolder(const std::string& root, const DecodeOptions& options)
    : options_(options) {
    const Scan scan(root);
    auto contents = std::make_shared<Contents>();
    contents->classes = scan.classes();
    if (contents->classes.empty())
        fail(root, "there is no folder of a class: expected images in " +
                       printable(Scan::inside(root, "<class>/")));
    std::string empty;  // the classes without images
    for (std::size_t label = 0; label < contents->classes.size(); ++label) {
        const auto found = scan.images(contents->classes[label]);
        if (found.empty())
            empty += (empty.empty() ? "" : ", ") + in_quotes(contents->classes[label]);
        for (const auto& [folder, name] : found)
            contents->images.push_back(
                {Scan::inside(folder, name), static_cast<std::int64_t>(label)});
    }
    if (!empty.empty())
        fail(root,
             str("there is no image (.jpg, .jpeg or .png) of the classes ", printable(empty, 500)));
    contents_ = std::move(contents);
}

const ImageFolder::Image& ImageFolder::image(std::int64_t index) const {
    if (index < 0 || index >= size())
        throw IndexError(
            str("ImageFolder: index ", index, " is out of range for ", size(), " images"));
    return contents_->images[static_cast<std::size_t>(index)];
}

Tree ImageFolder::get(std::int64_t index) const {
    const Image& source = image(index);
    return Tree{{"image", read_image(source.path, options_)},
                {"label", full({}, source.label, {.dtype = i64})}};
}

std::optional<Tree> ImageFolder::get_window(std::int64_t index, const std::string& key,
                                            const ChooseWindow& choose) const {
    const Dataset& self = *this;  // a derived class can have another get()
    if (key != "image" || typeid(self) != typeid(ImageFolder)) return std::nullopt;
    const Image& source = image(index);
    return Tree{{"image", read_window(source.path, options_, choose)},
                {"label", full({}, source.label, {.dtype = i64})}};
}

Tree ImageFolder::get_batch(std::span<const std::int64_t> indices) const {
    const std::vector<Tree> samples = get_samples(*this, indices);
    for (std::size_t i = 1; i < samples.size(); ++i) {
        const Shape first = samples[0]["image"].tensor().shape();
        const Shape shape = samples[i]["image"].tensor().shape();
        const auto path = [&](std::size_t sample) {
            return printable(contents_->images[static_cast<std::size_t>(indices[sample])].path);
        };
        if (shape != first)
            throw ShapeError(str("ImageFolder: the images of a batch have different sizes: ", first,
                                 " (", path(0), ") and ", shape, " (", path(i),
                                 "): apply a transform such as Resize({224, 224}) or "
                                 "RandomResizedCrop(224) with TransformedDataset"));
    }
    return collate(samples);
}

std::shared_ptr<const Dataset> ImageFolder::share() const {
    return std::make_shared<ImageFolder>(*this);
}

}  // namespace axle::data
