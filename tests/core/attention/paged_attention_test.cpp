// Compares attention to pages with attention to contiguous keys and values.
#include "core/attention/paged_attention.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "kernels/thread_pool.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_error;

struct Sizes {
    std::int64_t heads = 4, groups = 2, depth = 16, value_depth = 16, page = 16;
    DType dtype = f32;
    double unused = 1000;  // the value of unused tokens of pages
};

// Sequences of the given lengths, with random keys [1, G, T, D] and values [1, G, T, E], in pages
// whose order is not the order of the tokens.
struct Sequences {
    Sequences(const std::vector<std::int64_t>& lengths, const Sizes& s) : sizes(s) {
        const TensorOptions options{.dtype = s.dtype};
        q = randn({std::ssize(lengths), s.heads, 1, s.depth}, options);
        for (const std::int64_t length : lengths) {
            keys.push_back(randn({1, s.groups, length, s.depth}, options));
            values.push_back(randn({1, s.groups, length, s.value_depth}, options));
            PageTable table{.pages = {}, .length = length};
            for (std::int64_t begin = 0; begin < length; begin += s.page) {
                const std::int64_t count = std::min(s.page, length - begin);
                KeyValuePage page{full({s.groups, s.depth, s.page}, s.unused, options),
                                  full({s.groups, s.page, s.value_depth}, s.unused, options)};
                page.keys.narrow(2, 0, count)
                    .copy_(keys.back()[0].narrow(1, begin, count).transpose(1, 2));
                page.values.narrow(1, 0, count).copy_(values.back()[0].narrow(1, begin, count));
                pages.insert(pages.begin(), page);
                table.pages.push_back(std::ssize(pages));
            }
            tables.push_back(table);
        }
        for (PageTable& table : tables)  // page i of n was inserted before i - 1 others
            for (std::int64_t& page : table.pages) page = std::ssize(pages) - page;
    }

    // Returns the attention to contiguous keys and values in f64.
    Tensor expected() const {
        std::vector<Tensor> rows;
        for (std::size_t b = 0; b < keys.size(); ++b)
            rows.push_back(
                scaled_dot_product_attention(q.narrow(0, static_cast<std::int64_t>(b), 1).to(f64),
                                             keys[b].to(f64), values[b].to(f64)));
        return cat(rows);
    }

    Sizes sizes;
    Tensor q;
    std::vector<Tensor> keys, values;
    std::vector<KeyValuePage> pages;
    std::vector<PageTable> tables;
};

void expect_equal_attention(const Sequences& x, double tolerance) {
    const Tensor expected = x.expected();
    for (const auto attention : {paged_attention, gathered_attention}) {
        const Tensor y = attention(x.q, x.pages, x.tables, std::nullopt);
        EXPECT_EQ(y.dtype(), x.q.dtype());
        ASSERT_EQ(y.shape(), expected.shape());
        EXPECT_LE(max(abs(y.to(f64) - expected)).item(), tolerance);
    }
}

TEST(PagedAttention, EqualsAttentionToContiguousKeysAndValues) {
    manual_seed(1);
    for (const DType dtype : {f64, f32}) {
        const double tolerance = dtype == f64 ? 1e-13 : 2e-6;
        expect_equal_attention(Sequences({1, 15, 16, 17, 100}, {.dtype = dtype}), tolerance);
        expect_equal_attention(
            Sequences({70},
                      {.heads = 6, .groups = 1, .depth = 20, .value_depth = 20, .dtype = dtype}),
            tolerance);
        expect_equal_attention(Sequences({3, 65}, {.heads = 3,
                                                   .groups = 3,
                                                   .depth = 7,
                                                   .value_depth = 33,
                                                   .page = 64,
                                                   .dtype = dtype}),
                               tolerance);
    }
}

TEST(PagedAttention, CombinesLongSequencesFromSeveralUnits) {
    manual_seed(2);
    expect_equal_attention(Sequences({512, 513, 1700}, {.page = 64}), 2e-6);
    expect_equal_attention(Sequences({2049}, {.page = 1024, .dtype = f64}), 1e-13);
}

TEST(PagedAttention, ComputesHalfPrecisionInF32) {
    manual_seed(3);
    // Half of the distance between numbers near 1, for the only rounding: that of the result.
    expect_equal_attention(Sequences({200, 5}, {.dtype = bf16}), 0.005);
    expect_equal_attention(Sequences({200, 5}, {.dtype = f16}), 0.0008);
}

TEST(PagedAttention, IgnoresUnusedTokensOfPages) {
    manual_seed(7);
    const Sequences x({1, 18}, {.unused = std::numeric_limits<double>::quiet_NaN()});
    const Tensor y = paged_attention(x.q, x.pages, x.tables);
    EXPECT_LE(max(abs(y.to(f64) - x.expected())).item(), 2e-6);
}

TEST(PagedAttention, MultipliesScoresByTheScale) {
    manual_seed(4);
    const Sequences x({40}, {.dtype = f64});
    const Tensor expected =
        scaled_dot_product_attention(x.q, x.keys[0], x.values[0], {.scale = 0.7});
    for (const auto attention : {paged_attention, gathered_attention})
        EXPECT_LE(max(abs(attention(x.q, x.pages, x.tables, 0.7) - expected)).item(), 1e-13);
}

TEST(PagedAttention, AcceptsScoresOfMinusInfinity) {
    Sequences x({20}, {.heads = 1, .groups = 1});
    x.q.fill_(1);
    for (KeyValuePage& page : x.pages) page.keys.fill_(-std::numeric_limits<double>::infinity());
    EXPECT_EQ(max(abs(paged_attention(x.q, x.pages, x.tables))).item(), 0);
    // Only the first token has a finite score, so its value is the result.
    x.pages[x.tables[0].pages[0] == 0 ? 0 : 1].keys.select(2, 0).fill_(1);
    const Tensor y = paged_attention(x.q, x.pages, x.tables);
    EXPECT_TRUE(equal(y.reshape({-1}), x.values[0][0][0][0]));
}

TEST(PagedAttention, GivesTheSameBitsForEveryNumberOfThreads) {
    manual_seed(5);
    const Sequences x({1500, 64, 700}, {.page = 64});
    const int threads = kernels::num_threads();
    kernels::set_num_threads(1);
    const Tensor one = paged_attention(x.q, x.pages, x.tables);
    kernels::set_num_threads(3);
    const Tensor three = paged_attention(x.q, x.pages, x.tables);
    kernels::set_num_threads(threads);
    EXPECT_TRUE(equal(one, three));
}

TEST(PagedAttention, CastsQueriesUnderAutocast) {
    Sequences x({20}, {.dtype = bf16});
    const Tensor expected = paged_attention(x.q, x.pages, x.tables);
    const AutocastGuard guard(bf16);
    EXPECT_TRUE(equal(paged_attention(x.q.to(f32), x.pages, x.tables), expected));
}

TEST(PagedAttention, RejectsQueriesThatDoNotFitThePages) {
    const Sequences x({20, 30}, {});
    expect_error<ShapeError>({"paged_attention: q must be [2, heads, 1, head size]", "[1, 4, 1"},
                             [&] { paged_attention(x.q.narrow(0, 0, 1), x.pages, x.tables); });
    expect_error<ShapeError>({"paged_attention: pages must have keys [G, D, P]", "[2, 3, 1, 16]"},
                             [&] { paged_attention(x.q.narrow(1, 0, 3), x.pages, x.tables); });
    expect_error<DTypeError>({"paged_attention", "q", "keys"},
                             [&] { paged_attention(x.q.to(f64), x.pages, x.tables); });
    std::vector<PageTable> tables = x.tables;
    tables[1].length = 33;
    expect_error<ShapeError>({"paged_attention: a table of 33 tokens must have 3 pages of 16"},
                             [&] { paged_attention(x.q, x.pages, tables); });
    tables[1] = {};
    expect_error<ShapeError>({"paged_attention: a table must have at least one page"},
                             [&] { paged_attention(x.q, x.pages, tables); });
}

}  // namespace
}  // namespace axle
