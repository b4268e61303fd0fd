// Tests tables of text files.
#include <filesystem>

#include <gtest/gtest.h>

#include "data/tables/table.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/tables/written.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::FolderStorage;
using tests::TemporaryFolder;
using tests::written;
using Strings = std::vector<std::string>;

Strings texts(const std::string& path, SampleBy sample_by) {
    const Table table = Table::from_text(path, {.sample_by = sample_by});
    EXPECT_EQ(table.column_names(), Strings{"text"});
    Strings texts;
    for (const Tree& value : table.column("text")) texts.push_back(value.string());
    return texts;
}

TEST(TableFromText, HasARowForEachLine) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    EXPECT_EQ(texts(written(folder, "a\n\nb,\"c\r\nlast"), SampleBy::line),
              (Strings{"a", "", "b,\"c", "last"}));
    EXPECT_EQ(texts(written(folder, "\xef\xbb\xbf a \n"), SampleBy::line), Strings{" a "});
}

TEST(TableFromText, HasARowForEachParagraph) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    EXPECT_EQ(texts(written(folder, "\n\na\nb\r\n\r\n\nc\n\n"), SampleBy::paragraph),
              (Strings{"a\nb", "c"}));
    EXPECT_EQ(texts(written(folder, "\n\n"), SampleBy::paragraph), Strings());
}

TEST(TableFromText, HasARowForEachPart) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto parts = [&](const std::string& line, int lines) {
        std::string text;
        for (int i = 0; i < lines; ++i) text += line;
        const Strings rows = texts(written(folder, text), SampleBy::part);
        std::string all;
        for (const std::string& row : rows) all += row;
        EXPECT_EQ(all, text) << "the parts are the file";
        return rows;
    };
    EXPECT_EQ(parts("short\n", 1), Strings{"short\n"});
    // After a line end between words.
    const Strings lines = parts("a line.\n", 20'000);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0].size(), (std::size_t{1} << 16) + 8);
    EXPECT_TRUE(lines[0].ends_with("line.\n"));
    EXPECT_TRUE(lines[1].starts_with("a line"));
    // Before a line end, if white space precedes or follows it, and the line ends with a word.
    EXPECT_TRUE(parts("\na line\n\n", 10'000)[1].starts_with("\n\n\na line"));
    EXPECT_TRUE(parts("a line\r\n", 10'000)[1].starts_with("\r\na line"));
    EXPECT_TRUE(parts("a line\n\xe3\x80\x80", 10'000)[1].starts_with("\n\xe3\x80\x80"));
    // Nowhere, if there is no such place.
    EXPECT_EQ(parts("a line.\r\n", 10'000).size(), 1u);
    EXPECT_EQ(parts("a line.\n\n", 10'000).size(), 1u);
    EXPECT_EQ(parts("a line.\xe3\x80\x80\n", 10'000).size(), 1u);
    EXPECT_EQ(parts("words ", 20'000).size(), 1u);
    EXPECT_EQ(parts("line. \n", 2'600'000).size(), 2u) << "16 MiB are searched";
}

TEST(TableFromText, HasARowForEachFileOfAFolder) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::filesystem::create_directory(folder / "folder");
    written(folder, "second\n\n", "b.txt");
    written(folder, "first\nline 2\n", "a.txt");
    written(folder, "hidden", ".hidden");
    EXPECT_EQ(texts(folder.path(), SampleBy::document), (Strings{"first\nline 2\n", "second\n\n"}));
    EXPECT_EQ(texts(folder.path(), SampleBy::line), (Strings{"first", "line 2", "second", ""}));
    // Folders and files can be symbolic links.
    std::filesystem::create_directory(folder / "links");
    std::filesystem::create_symlink(folder / "b.txt", folder / "links/c.txt");
    std::filesystem::create_symlink(folder / "links", folder / "linked");
    EXPECT_EQ(texts(folder / "linked", SampleBy::line), (Strings{"second", ""}));
    written(folder, "", "c.txt");
    EXPECT_EQ(texts(folder.path(), SampleBy::document).back(), "");
}

TEST(TableFromText, RejectsFilesThatCannotBeRead) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    expect_error<FileError>(
        {folder.path().c_str(), "the folder must have a file that is not hidden"},
        [&] { Table::from_text(folder.path()); });
    expect_error<FileError>({(folder / "missing").c_str()},
                            [&] { Table::from_text(folder / "missing"); });
    const std::string path = written(folder, "ok\n12345678\x80\n");
    for (const SampleBy sample_by : {SampleBy::line, SampleBy::paragraph, SampleBy::document})
        expect_error<FileError>({path.c_str(), ": line 2: byte 11: the text is not valid UTF-8"},
                                [&] { texts(path, sample_by); });
    EXPECT_EQ(texts(written(folder, "ok\n"), SampleBy::document), Strings{"ok\n"});
}

}  // namespace
}  // namespace axle::data
