#include "data/webdataset/tar.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/files/file.h"
#include "tests/close.h"
#include "tests/data/webdataset/tar_files.h"

namespace axle::data {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using tests::FolderStorage;
using tests::kTarEnd;
using tests::octal;
using tests::pax_record;
using tests::tar_header;
using tests::tar_member;
using tests::TemporaryFolder;
using tests::written_tar;
using Files = std::vector<std::pair<std::string, std::string>>;

Files files_in(const std::string& bytes) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    TarReader archive(written_tar(folder, bytes));
    Files files;
    while (const auto member = archive.next()) {
        std::string contents(static_cast<std::size_t>(member->size), '\0');
        archive.read(*member, std::as_writable_bytes(std::span(contents)));
        files.emplace_back(member->name, contents);
    }
    EXPECT_FALSE(archive.next());
    return files;
}

// Returns the message without the path, or "no error".
std::string tar_error(const std::string& bytes) {
    try {
        files_in(bytes);
    } catch (const FileError& error) {
        const std::string text = error.what();
        const std::size_t path = text.find("a.tar: ");
        EXPECT_NE(path, std::string::npos) << text;
        return text.substr(path + 7);
    }
    return "no error";
}

TEST(Tar, ReadsFilesAndSkipsDirectories) {
    const std::string long_text(1300, 'x');
    EXPECT_EQ(files_in(tar_member("a", "") + tar_member("./d/", "", '5') +
                       tar_member("./d/b", long_text) + tar_member("c", "1", '7') + kTarEnd +
                       "bytes after the end are ignored"),
              (Files{{"a", ""}, {"./d/b", long_text}, {"c", "1"}}));
    EXPECT_EQ(files_in(std::string(512, '\0')), Files{});
}

TEST(Tar, ReadsHeadersOfOldPrograms) {
    // V7 has no magic number: the field after it is not a prefix of the name. Its type is a zero
    // byte, and directories have a slash.
    std::string header = tar_header("name", octal(3), '\0');
    header.replace(257, 8, 8, '\0');
    header.replace(345, 3, "abc");
    const std::string folder = tests::with_checksum(tar_header("d/", "", '\0'));
    EXPECT_EQ(
        files_in(folder + tests::with_checksum(header) + "xyz" + std::string(509, '\0') + kTarEnd),
        (Files{{"name", "xyz"}}));
    // Numbers with spaces, and checksums of signed bytes.
    std::string spaces = tar_header("\xc3\xa9", "     3 ");
    int sum = 8 * ' ';
    for (std::size_t i = 0; i < 512; ++i)
        if (i < 148 || i >= 156) sum += static_cast<signed char>(spaces[i]);
    spaces.replace(148, 7, octal(static_cast<std::size_t>(sum)).substr(5) + " ");
    EXPECT_EQ(files_in(spaces + "xyz" + std::string(509, '\0') + kTarEnd),
              (Files{{"\xc3\xa9", "xyz"}}));
}

TEST(Tar, ReadsLongNamesAndSizesOfExtendedHeaders) {
    const std::string name = std::string(300, 'n');
    EXPECT_EQ(files_in(tar_member("././@LongLink", name + '\0', 'L') + tar_member("short", "1") +
                       tar_member("b", "2") + kTarEnd),
              (Files{{name, "1"}, {"b", "2"}}));
    // The target of a link is ignored, and so are other records and global headers.
    const std::string pax =
        pax_record("mtime=1.5") + pax_record("path=" + name) + pax_record("size=2");
    EXPECT_EQ(files_in(tar_member("g", pax_record("comment=abc"), 'g') + tar_member("k", "x", 'K') +
                       tar_member("p", pax, 'x') + tar_header("short", octal(0)) + "12" +
                       std::string(510, '\0') + tar_member("b", "2") + kTarEnd),
              (Files{{name, "12"}, {"b", "2"}}));
    const std::string binary = std::string("\x80\0\0\0\0\0\0\0\0\0\0\3", 12);
    EXPECT_EQ(files_in(tar_header("a", binary) + "xyz" + std::string(509, '\0') + kTarEnd),
              (Files{{"a", "xyz"}}));
}

TEST(Tar, RejectsTruncatedArchives) {
    const std::string whole = tar_member("a", "1") + tar_member("p", pax_record("path=b"), 'x') +
                              tar_member("c", std::string(600, 'x')) + std::string(512, '\0');
    EXPECT_EQ(tar_error(whole), "no error");
    for (std::size_t n = 0; n < whole.size(); n += 5)
        EXPECT_THAT(tar_error(whole.substr(0, n)), StartsWith("byte ")) << n << " bytes";
    EXPECT_EQ(tar_error(""), "byte 0: not a tar archive: the file is empty");
    EXPECT_EQ(tar_error(tar_member("a", "1")),
              "byte 1024: the archive is truncated: a block of zeros must mark its end");
    EXPECT_EQ(tar_error(tar_member("a", "1") + "x"),
              "byte 1024: the archive is truncated in a header");
    EXPECT_EQ(tar_error(tar_member("a", "1") + tar_header("b.jpg", octal(1000)) + "x"),
              "byte 1024: member 'b.jpg': the archive is truncated: the member has 1000 bytes, but "
              "only 1 follow");
}

TEST(Tar, RejectsHostileSizesBeforeAllocatingMemory) {
    const auto error_of = [](const std::string& size, char type = '0') {
        return tar_error(tar_header("a", size, type) + kTarEnd);
    };
    EXPECT_THAT(error_of("77777777777"), HasSubstr("the member has 8589934591 bytes, but only"));
    EXPECT_THAT(error_of(std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12)),
                HasSubstr("the member has 9223372036854775807 bytes"));
    for (const std::string& size :
         {std::string("\x80\0\0\0\x80\0\0\0\0\0\0\0", 12), std::string(12, '\xff'),
          std::string("-0000000001"), std::string("00000000009"), std::string("1 x"),
          std::string("x")})
        EXPECT_EQ(error_of(size), "byte 0: member 'a': the size is not a valid number") << size;
    for (const char type : {'x', 'g', 'L', 'K'}) {
        const std::string text(kMaxTarExtension + 1, 'x');
        EXPECT_THAT(tar_error(tar_member("p", text, type) + kTarEnd),
                    HasSubstr("member 'p': the extended header has 1048577 bytes, more than the "
                              "maximum of 1048576"));
    }
    const std::string pax = pax_record("size=9223372036854775807");
    EXPECT_THAT(tar_error(tar_member("p", pax, 'x') + tar_member("a", "1") + kTarEnd),
                HasSubstr("byte 1024: member 'a': the archive is truncated"));
}

TEST(Tar, RejectsInvalidHeaders) {
    std::string damaged = tar_member("a", "1") + tar_member("b", "1") + kTarEnd;
    damaged[1024] = 'c';
    EXPECT_EQ(tar_error(damaged), "byte 1024: the checksum of the header is wrong");
    EXPECT_EQ(tar_error(std::string(600, 'x')),
              "byte 0: not a tar archive: the checksum of the first header is wrong");
    EXPECT_EQ(tar_error("\x1f\x8b" + std::string(600, 'x')),
              "byte 0: the archive is compressed with gzip: decompress it first");
    EXPECT_EQ(tar_error("x"), "byte 0: not a tar archive: it is shorter than a header");
    for (const auto& [text, reason] : std::vector<std::pair<std::string, const char*>>{
             {"x", "expected '<length> <key>=<value>'"},
             {"9 a=b\n", "expected '<length> <key>=<value>'"},
             {"2 a=b\n", "expected '<length> <key>=<value>'"},
             {"99999999999999999999999 a=b\n", "expected '<length> <key>=<value>'"},
             {"6 a=bx", "expected '<length> <key>=<value>'"},
             {"6 abc\n", "it has no '='"},
             {pax_record("size=-1"), "the size in the pax header is invalid: '-1'"},
             {pax_record("size="), "the size in the pax header is invalid: ''"},
             {pax_record("GNU.sparse.major=1"), "sparse files are not supported"}})
        EXPECT_THAT(tar_error(tar_member("p", text, 'x') + tar_member("a", "1") + kTarEnd),
                    testing::AllOf(StartsWith("byte 0: "), HasSubstr(reason)));
    EXPECT_THAT(tar_error(tar_member("p", pax_record("path=x"), 'g') + kTarEnd),
                HasSubstr("the global pax header sets the path of all members"));
    EXPECT_EQ(tar_error(tar_member("p", pax_record("path=x"), 'x') + kTarEnd),
              "byte 1024: an extended header is not followed by a member");
}

TEST(Tar, RejectsLinksDevicesAndNamesOutsideOfTheArchive) {
    for (const auto& [type, reason] :
         std::vector<std::pair<char, const char*>>{{'1', "links are not supported"},
                                                   {'2', "symbolic links are not supported"},
                                                   {'3', "devices are not supported"},
                                                   {'4', "devices are not supported"},
                                                   {'6', "pipes are not supported"},
                                                   {'S', "sparse files are not supported"},
                                                   {'Z', "unknown type of member: 'Z'"}})
        EXPECT_EQ(tar_error(tar_member("a", "1") + tar_header("b", octal(0), type) + kTarEnd),
                  str("byte 1024: member 'b': ", reason));
    const auto name_error = [](const std::string& name) {
        return tar_error(tar_member("p", pax_record("path=" + name), 'x') + tar_member("a", "1") +
                         kTarEnd);
    };
    EXPECT_EQ(name_error("/etc/a.cls"), "byte 1024: member '/etc/a.cls': the name is absolute");
    for (const char* name : {"../a.cls", "a/../b.cls", "a/.."})
        EXPECT_THAT(name_error(name), HasSubstr("the name contains '..'"));
    EXPECT_EQ(name_error("a/..b"), "no error");
    EXPECT_EQ(name_error(""), "byte 1024: a member has no name");
    EXPECT_THAT(name_error("\xff"), HasSubstr("the name is not valid UTF-8"));
    EXPECT_THAT(name_error(std::string("a\0b", 3)), HasSubstr("the name is not valid UTF-8"));
    EXPECT_EQ(name_error(std::string(kMaxTarName, 'n')), "no error");
    EXPECT_THAT(name_error(std::string(kMaxTarName + 1, 'n')),
                HasSubstr("the name has 4097 bytes, more than the maximum of 4096"));
}

}  // namespace
}  // namespace axle::data
