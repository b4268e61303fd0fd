#include "dist/group/tree_bytes.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "kernels/error.h"

namespace axle {
namespace {

using dist::from_bytes;
using dist::to_bytes;

Tree everything() {
    Tree tree{{"null", Tree()},
              {"integer", std::numeric_limits<std::int64_t>::min()},
              {"number", 0.1},
              {"flag", true},
              {"text", std::string("\xff\0 no UTF-8", 11)},
              {"list", Tree::list({1, 2.5, "three"})}};
    tree.set("strided", arange(6).reshape({2, 3}).transpose(0, 1));
    tree.set("empty", Tensor::empty({0, 4}, {.dtype = DType::f8_e5m2}));
    tree.set("scalar", full({}, 2.0, {.dtype = bf16}));
    return tree;
}

TEST(TreeBytes, RestoreEveryKindOfValue) {
    const Tree back = from_bytes(to_bytes("send_tree", everything()));
    ASSERT_EQ(back.size(), 9u);
    EXPECT_TRUE(back["null"].is_null());
    EXPECT_EQ(back["integer"].integer(), std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(back["number"].number(), 0.1);
    EXPECT_TRUE(back["flag"].boolean());
    EXPECT_EQ(back["text"].string(), std::string("\xff\0 no UTF-8", 11));
    EXPECT_EQ(back["list"][2].string(), "three");
    EXPECT_EQ(back["strided"].tensor().shape(), Shape({3, 2}));
    EXPECT_EQ(back["strided"].tensor().to_vector(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(back["empty"].tensor().shape(), Shape({0, 4}));
    EXPECT_EQ(back["empty"].tensor().dtype(), DType::f8_e5m2);
    EXPECT_EQ(back["scalar"].tensor().item(), 2);
}

TEST(TreeBytes, PreserveTheBitsOfNumbers) {
    for (const double x : {-0.0, std::numeric_limits<double>::infinity(), std::nan("7")})
        EXPECT_EQ(std::bit_cast<std::uint64_t>(from_bytes(to_bytes("send_tree", x)).number()),
                  std::bit_cast<std::uint64_t>(x));
}

TEST(TreeBytes, AreRejectedIfTruncatedOrTooLong) {
    const std::string bytes = to_bytes("send_tree", everything());
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_THROW(from_bytes(bytes.substr(0, length)), CommError) << length;
    EXPECT_THROW(from_bytes(bytes + '\0'), CommError);
}

TEST(TreeBytes, ThrowOnlyCommErrorIfCorrupted) {
    const std::string bytes = to_bytes("send_tree", everything());
    std::size_t changes = 0, rejected = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        for (const char value : {'\0', '\1', '\7', '\x40', '\x7f', '\xff'}) {
            std::string changed = bytes;
            changed[i] = value;
            ++changes;
            try {
                from_bytes(changed);
            } catch (const CommError&) {
                ++rejected;
            }
        }
    }
    // A changed kind, dtype, size or length is rejected if it is invalid. A changed number is
    // accepted, because every value is valid.
    EXPECT_GT(rejected, 0u);
    EXPECT_LT(rejected, changes);
}

TEST(TreeBytes, AreRejectedIfNestedTooDeeply) {
    Tree tree;
    std::string bytes;
    for (int depth = 0; depth <= kMaxTreeDepth; ++depth) {
        tree = Tree::list({tree});
        bytes += std::string("\6\1\0\0\0\0\0\0\0", 9);
    }
    EXPECT_THROW(to_bytes("send_tree", tree), ValueError);
    EXPECT_THROW(from_bytes(bytes + '\0'), CommError);
}

}  // namespace
}  // namespace axle
