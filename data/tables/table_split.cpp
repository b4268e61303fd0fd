// Tables of selected rows of a table: select(), shuffle(), shard() and train_test_split().
#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "data/mt19937.h"
#include "data/tables/row_source.h"
#include "data/tables/table.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

// Returns the number of rows of the test part. Throws ValueError unless both parts have rows.
std::int64_t test_rows(const Scalar& test_size, std::int64_t n) {
    const auto throw_invalid = [&](const std::string& what) {
        throw ValueError(str("train_test_split: test_size must be ", what));
    };
    if (n < 2)
        throw ValueError(str("train_test_split: the table must have at least 2 rows: it has ", n));
    std::int64_t rows = 0;
    if (test_size.is_integral()) {
        rows = test_size.to_int64();
        if (rows <= 0 || rows >= n)
            throw_invalid(str("in [1, ", n - 1, "] for ", n, " rows: it is ", rows));
    } else {
        const double fraction = test_size.to_double();
        if (!(fraction > 0 && fraction < 1))
            throw_invalid(str("a number of rows or a fraction in (0, 1): it is ", fraction));
        rows = static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(n)));
        if (rows >= n)
            throw_invalid(str("smaller: with ", fraction, ", ", n, " rows leave no training rows"));
    }
    return rows;
}

// The class of each row.
struct Classes {
    std::vector<std::size_t> of_row;
    std::vector<std::int64_t> counts;  // number of rows of each class
};

Classes classes_of(const Table& table, const std::string& name) {
    const ColumnType type = table.column_schema(name).type;
    if (type != ColumnType::text && type != ColumnType::integer && type != ColumnType::boolean)
        throw ValueError(str("train_test_split: the type of stratify_by_column must be text, ",
                             "integer or boolean: it is ", type));
    Classes classes;
    std::unordered_map<std::string, std::size_t> known;
    const Table column = table.select_columns({name});
    for (std::int64_t i = 0; i < table.size(); ++i) {
        const Tree row = column.get(i);
        const Tree& value = row.entries()[0].value;
        const auto [found, is_new] = known.emplace(key_of(value), classes.counts.size());
        if (is_new) classes.counts.push_back(0);
        ++classes.counts[found->second];
        classes.of_row.push_back(found->second);
    }
    return classes;
}

// Distributes `rows` rows to the classes in proportion to their counts (_approximate_mode of
// scikit-learn): rounds down, then adds one row to the classes with the largest remainders.
std::vector<std::int64_t> proportional(const std::vector<std::int64_t>& counts, std::int64_t rows) {
    const auto n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    std::vector<std::int64_t> parts;
    std::vector<double> remainders;
    for (const std::int64_t count : counts) {
        const double exact =
            static_cast<double>(count) / static_cast<double>(n) * static_cast<double>(rows);
        parts.push_back(static_cast<std::int64_t>(std::floor(exact)));
        remainders.push_back(exact - std::floor(exact));
    }
    std::vector<std::size_t> order(counts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(
        order, [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
    std::int64_t left = rows - std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    for (const std::size_t i : order) {
        if (left == 0) break;
        ++parts[i];
        --left;
    }
    return parts;
}

void check_classes(const Classes& classes, std::int64_t train, std::int64_t test) {
    const auto smallest = std::ranges::min_element(classes.counts);
    if (*smallest < 2) {
        const auto smallest_class = static_cast<std::size_t>(smallest - classes.counts.begin());
        const auto row = std::ranges::find(classes.of_row, smallest_class) - classes.of_row.begin();
        throw ValueError(str("train_test_split: each class of stratify_by_column must have at ",
                             "least 2 rows: the class of row ", row, " has 1"));
    }
    const auto count = std::ssize(classes.counts);
    if (train < count || test < count)
        throw ValueError(str("train_test_split: each part must have a row for each of the ", count,
                             " classes: the parts have ", train, " and ", test, " rows"));
}

}  // namespace

Table Table::select(const std::vector<std::int64_t>& indices) const {
    auto rows = std::make_shared<std::vector<std::int64_t>>();
    rows->reserve(indices.size());
    for (const std::int64_t index : indices) rows->push_back(source_row(index));
    Table table = *this;
    table.rows_ = std::move(rows);
    return table;
}

Table Table::shuffle(std::uint64_t seed) const { return select(randperm(size(), seed)); }

Table Table::shard(std::int64_t num_shards, std::int64_t index, bool contiguous) const {
    if (index < 0 || index >= num_shards)
        throw ValueError(num_shards < 1
                             ? str("shard: num_shards must be positive: it is ", num_shards)
                             : str("shard: index must be in [0, num_shards): index ", index,
                                   ", num_shards ", num_shards));
    std::vector<std::int64_t> indices;
    if (contiguous) {
        const std::int64_t quotient = size() / num_shards, rest = size() % num_shards;
        const std::int64_t begin = quotient * index + std::min(index, rest);
        indices.resize(static_cast<std::size_t>(quotient + (index < rest ? 1 : 0)));
        std::iota(indices.begin(), indices.end(), begin);
    } else {
        for (std::int64_t i = index; i < size(); i += num_shards) indices.push_back(i);
    }
    return select(indices);
}

TrainTestSplit Table::train_test_split(const TrainTestSplitOptions& options) const {
    const std::int64_t n = size(), num_test = test_rows(options.test_size, n);
    if (options.stratify_by_column && !options.shuffle)
        throw ValueError(
            "train_test_split: stratify_by_column requires shuffle = true: shuffle is false");
    std::vector<std::int64_t> order(static_cast<std::size_t>(n)), train, test;
    if (!options.shuffle) {
        std::iota(order.begin(), order.end(), std::int64_t{0});
        const auto middle = order.end() - num_test;
        return {select({order.begin(), middle}), select({middle, order.end()})};
    }
    order = randperm(n, options.seed);
    if (!options.stratify_by_column) {
        const auto middle = order.begin() + num_test;
        return {select({middle, order.end()}), select({order.begin(), middle})};
    }
    Table plain = *this;
    plain.has_tensors_ = false;  // values identify classes, but tensors do not
    const Classes classes = classes_of(plain, *options.stratify_by_column);
    check_classes(classes, n - num_test, num_test);
    std::vector<std::int64_t> left = proportional(classes.counts, n - num_test);
    for (const std::int64_t row : order) {
        std::int64_t& train_left = left[classes.of_row[static_cast<std::size_t>(row)]];
        (train_left > 0 ? train : test).push_back(row);
        if (train_left > 0) --train_left;
    }
    return {select(train), select(test)};
}

}  // namespace axle::data
