#include "data/files/npy.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/files/file.h"
#include "core/ops.h"
#include "tests/close.h"
#include "tests/data/files/damage.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::golden_image;
using tests::parse_error;
using Values = std::vector<double>;

struct Code {
    const char* name;
    DType dtype;
};
constexpr Code kCodes[] = {
    {"b1", boolean}, {"i1", DType::i8},  {"i2", DType::i16}, {"i4", i32},        {"i8", i64},
    {"u1", u8},      {"u2", DType::u16}, {"u4", DType::u32}, {"u8", DType::u64}, {"f2", f16},
    {"f4", f32},     {"f8", f64},        {"c8", DType::c64}};

template <class T>
std::string raw(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Returns the bytes of the six elements in a recorded [2, 3] array of this dtype, such as f4.npy.
// record_images.py writes these arrays.
std::string elements(DType dtype) {
    switch (dtype) {
        case DType::boolean:
            return std::string("\0\1\0\1\0\1", 6);
        case DType::i8:
            return raw<std::int8_t>({-2, -1, 0, 1, 2, 3});
        case DType::i16:
            return raw<std::int16_t>({-2, -1, 0, 1, 2, 3});
        case DType::i32:
            return raw<std::int32_t>({-2, -1, 0, 1, 2, 3});
        case DType::i64:
            return raw<std::int64_t>({-2, -1, 0, 1, 2, 3});
        case DType::u8:
            return raw<std::uint8_t>({0, 1, 2, 3, 4, 5});
        case DType::u16:
            return raw<std::uint16_t>({0, 1, 2, 3, 4, 5});
        case DType::u32:
            return raw<std::uint32_t>({0, 1, 2, 3, 4, 5});
        case DType::u64:
            return raw<std::uint64_t>({0, 1, 2, 3, 4, 5});
        case DType::f16:
            return raw<std::uint16_t>({0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200});
        case DType::f32:
            return raw<float>({-2, -1, 0, 1, 2, 3});
        case DType::f64:
            return raw<double>({-2, -1, 0, 1, 2, 3});
        default:
            return raw<float>({-2, 0, -1, 1, 0, 2, 1, 3, 2, 4, 3, 5});
    }
}

std::string elements(const Tensor& t) {
    return {static_cast<const char*>(t.raw_data()),
            static_cast<std::size_t>(t.numel() * size_of(t.dtype()))};
}

// Returns the bytes of a .npy file of version 1.0 with this header.
std::string npy(const std::string& header, const std::string& data = "") {
    return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header +
           data;
}

TEST(Npy, ReadsSupportedDTypesInBothOrdersAndEndiannesses) {
    for (const auto& [name, dtype] : kCodes)
        for (const char* form : {".npy", "_big_fortran.npy"}) {
            const Tensor array = load_npy(golden_image(std::string(name) + form));
            EXPECT_EQ(array.dtype(), dtype) << name << form;
            EXPECT_EQ(array.shape(), (Shape{2, 3}));
            EXPECT_TRUE(array.is_contiguous());
            EXPECT_EQ(elements(array), elements(dtype)) << name << form;
        }
}

TEST(Npy, ReadsScalarsEmptyArraysAndEveryVersion) {
    EXPECT_EQ(load_npy(golden_image("scalar.npy")).shape(), Shape{});
    EXPECT_EQ(load_npy(golden_image("scalar.npy")).item(), -2);
    EXPECT_EQ(load_npy(golden_image("empty.npy")).shape(), (Shape{3, 0}));
    EXPECT_EQ(load_npy(golden_image("list.npy")).to_vector(), (Values{-2, -1, 0, 1, 2}));
    for (const char* name : {"version2.npy", "version3.npy"})
        EXPECT_EQ(load_npy(golden_image(name)).to_vector(), (Values{-2, -1, 0, 1, 2, 3}));
    tests::expect_same_bits(load_npy(golden_image("fortran3.npy")),
                            arange(-2, 22, 1, {f32}).reshape({2, 3, 4}));
}

TEST(Npy, WritesSameBytesAsNumPyAndOnlyTheElementsOfViews) {
    const tests::TemporaryFolder folder;
    std::vector<std::string> names = {"scalar.npy", "empty.npy", "list.npy"};
    for (const Code& code : kCodes) names.push_back(std::string(code.name) + ".npy");
    for (const std::string& name : names) {
        save_npy(folder / name, load_npy(golden_image(name)));
        EXPECT_EQ(read_file(folder / name), read_file(golden_image(name))) << name;
    }
    // save_npy() writes only the elements of a view, not its storage.
    save_npy(folder / "t.npy", load_npy(golden_image("f4.npy")).t());
    EXPECT_EQ(load_npy(folder / "t.npy").to_vector(), (Values{-2, 1, -1, 2, 0, 3}));
    save_npy(folder / "part.npy", arange(1000, {i64}).narrow(0, 7, 2));
    EXPECT_EQ(load_npy(folder / "part.npy").to_vector(), (Values{7, 8}));
    EXPECT_LT(std::filesystem::file_size(folder / "part.npy"), 200U);
    save_npy(folder / "deep.npy", ones({1, 1, 1, 2, 1, 1, 1, 123456}));
    EXPECT_EQ(load_npy(folder / "deep.npy").shape(), (Shape{1, 1, 1, 2, 1, 1, 1, 123456}));
}

TEST(Npy, RejectsWritingUnsupportedTensorsOrToMissingFolders) {
    const tests::TemporaryFolder folder;
    expect_error<DTypeError>({"save_npy: NumPy does not support the dtype bfloat16"},
                             [&] { save_npy(folder / "a.npy", ones({2}, {bf16})); });
    expect_error<UsageError>({"save_npy: the tensor is undefined"},
                             [&] { save_npy(folder / "a.npy", Tensor()); });
    EXPECT_EQ(folder.count(), 0u);
    EXPECT_THROW(save_npy(folder / "no/a.npy", ones({2})), FileError);
}

TEST(Npy, RejectsTruncatedAndExtendedFiles) {
    for (const char* name : {"b1.npy", "f8_big_fortran.npy", "version2.npy", "scalar.npy"})
        tests::expect_only_complete_files(read_file(golden_image(name)), parse_npy);
}

TEST(Npy, RejectsMostFlippedBytesOfHeader) {
    for (const char* name : {"i4.npy", "f8_big_fortran.npy", "version3.npy"}) {
        const std::string bytes = read_file(golden_image(name));
        // A flip can result in another dtype of the same width, another byte order or other
        // whitespace.
        EXPECT_LT(tests::count_accepted_flips(bytes, 0, 128, parse_npy), 100) << name;
        // Version 3 can become version 2, which is read in the same way.
        const int versions = bytes[6] == 3 ? 1 : 0;
        EXPECT_EQ(tests::count_accepted_flips(bytes, 0, 9, parse_npy), versions) << name;
    }
}

TEST(Npy, AcceptsOtherWhitespaceQuotesAndKeyOrders) {
    const auto shape_of = [](const std::string& header, const std::string& data) {
        const std::string file = npy(header, data);
        return parse_npy(std::as_bytes(std::span(file)), "memory").shape();
    };
    EXPECT_EQ(shape_of(R"({"shape":(2,1),'fortran_order':True,'descr':'|u1'})", "ab"),
              (Shape{2, 1}));
    EXPECT_EQ(shape_of("{ 'shape' : ( 2L , ) ,\n'fortran_order' : False , 'descr' : '=i2' , } \n",
                       "abcd"),
              (Shape{2}));
    EXPECT_EQ(
        shape_of("{'shape': (9223372036854775807, 0), 'fortran_order': True, 'descr': '|u1'}", ""),
        (Shape{9223372036854775807, 0}));
}

TEST(Npy, ReportsOffsetAndReasonForInvalidFiles) {
    const auto expect_message = [](const std::string& bytes, const std::string& reason) {
        const std::string text = parse_error(bytes, parse_npy);
        EXPECT_NE(text.find(reason), std::string::npos) << text;
    };
    const auto with = [](const std::string& descr, const std::string& order,
                         const std::string& shape, const std::string& data = "") {
        return npy(
            "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n",
            data);
    };
    expect_message("", "byte 0: the header is truncated");
    expect_message("PK\3\4 a zip file", "byte 0: not an .npy file");
    expect_message(std::string("\x93NUMPY\4\0\0\0\0\0", 12),
                   "byte 6: the format version must be 1.0, 2.0 or 3.0: it is 4.0");
    expect_message(std::string("\x93NUMPY\1\1\0\0", 10),
                   "byte 6: the format version must be 1.0, 2.0 or 3.0: it is 1.1");
    expect_message(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12),
                   "byte 8: the header has 4294967295 bytes, more than the maximum of 65536");
    expect_message(npy(""), "byte 10: expected '{' in the header");
    expect_message(npy("{"), "byte 11: expected a string in the header");
    expect_message(npy("{}"), "byte 12: descr, fortran_order or shape is missing");
    expect_message(npy("{'descr': '<f4', 'descr': '<f4'}"), "byte 34: duplicate key: 'descr'");
    expect_message(npy("{'a\tb': 1}"),
                   "byte 16: unknown key, expected descr, fortran_order or shape: 'a\\x09b'");
    expect_message(npy("{'descr"), "byte 11: unterminated string in the header");
    expect_message(npy("{} {"), "byte 13: unexpected text after the header's dict");
    expect_message(with("'<f4'", "1", "()"), "byte 44: fortran_order must be True or False");
    expect_message(with("'<f4'", "False", "3"), "expected '(' in the header");
    expect_message(with("'<f4'", "False", "(3)"), "a tuple with one element needs a comma");
    expect_message(with("'<f4'", "False", "(-3,)"), "expected a non-negative integer in the shape");
    expect_message(with("'<f4'", "False", "(9223372036854775808,)"), "a size overflows int64");
    expect_message(with("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "more than 8 dimensions");
    expect_message(with("'<f4'", "False", "(4611686018427387904, 4)"),
                   "the number of bytes overflows int64: [4611686018427387904, 4]");
    expect_message(
        with("'<f4'", "False", "(15000000000,)", "abcd"),
        "[15000000000] of float32 needs 60000000000 bytes, but only 4 follow the header");
    expect_message(with("'|b1'", "False", "(2,)", "\1\2"), "a boolean element must be 0 or 1");
    expect_message(with("'|f4'", "False", "()", "abcd"),
                   "byte 20: unsupported dtype, expected a boolean, an integer, a float or "
                   "complex64, such as '<f4': '|f4'");
    expect_message(
        with("''", "False", "()", "abcd"),
        "byte 20: unsupported dtype, expected a boolean, an integer, a float or complex64, "
        "such as '<f4': ''");
    expect_message(read_file(golden_image("text.npy")),
                   "byte 20: unsupported dtype, expected a boolean, an integer, a float or "
                   "complex64, such as '<f4': '<U2'");
    expect_message(read_file(golden_image("c16.npy")),
                   "byte 20: unsupported dtype, expected a boolean, an integer, a float or "
                   "complex64, such as '<f4': '<c16'");
    expect_message(read_file(golden_image("objects.npy")),
                   "byte 20: pickled Python objects are not supported");
    expect_message(read_file(golden_image("fields.npy")),
                   "byte 20: structured dtypes are not supported");
    expect_error<FileError>({"/no/such/file: can't open"}, [] { load_npy("/no/such/file"); });
}

}  // namespace
}  // namespace axle::data
