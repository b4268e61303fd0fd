#include <limits>

#include "core/ops.h"
#include "core/reductions.h"
#include "tests/cases/reduction_cases.h"

namespace axle::tests {

namespace {

void extremes(Cases& cases) {
    for (const bool largest : {true, false}) {
        const std::string side = largest ? "max" : "min", name = "a" + side;
        reduces(cases, name, str("x[0].", name, "("), distinct,
                [=](const Tensor& x, const Dims& d, bool k) {
                    return largest ? amax(x, d, k) : amin(x, d, k);
                });
        plain(
            cases, name + "/ties", str("x[0].", name, "(-1)"), {{ties({4, 5})}, {ties({3, 67})}},
            [=](In x) { return largest ? amax(x[0], -1) : amin(x[0], -1); }, true);
        refuses<ValueError>(cases, name, {"[0, 3]"}, [=] {
            largest ? amax(floats_of({0, 3}), 0) : amin(floats_of({0, 3}), 0);
        });

        const std::string indexed = side + "_with_indices";
        const auto find = [=](const Tensor& x, std::int64_t dim, bool keep) {
            return largest ? max_with_indices(x, dim, keep) : min_with_indices(x, dim, keep);
        };
        cases.push_back(
            {.name = indexed,
             .torch = str("torch.", side, "(x[0], -1)"),
             .call = [=](In x) { return find(x[0], -1, false); },
             .rows = {{distinct({3, 4})}, {distinct({3, 67})}, {distinct({0, 4})}, {distinct({})}},
             .twice = true});
        cases.push_back({.name = indexed + "/first",
                         .torch = str("torch.", side, "(x[0], 0, keepdim=True)"),
                         .call = [=](In x) { return find(x[0], 0, true); },
                         .rows = {{distinct({4, 3})}, {distinct({5, 2, 3})}},
                         .twice = true});
        plain(cases, indexed + "/other", str("torch.", side, "(x[0], -1)"),
              {{ties({3, 67})}, {ints({3, 9}, -3, 3)}, {specials({3, 11})}, {mask({3, 9})}},
              [=](In x) { return find(x[0], -1, false); });
        refuses<ValueError>(cases, indexed, {"[0, 3]"}, [=] { find(floats_of({0, 3}), 0, false); });

        const std::string cumulative = "cum" + side;
        const auto scan = [=](const Tensor& x, std::int64_t dim) {
            return largest ? cummax(x, dim) : cummin(x, dim);
        };
        cases.push_back({.name = cumulative,
                         .torch = str("torch.", cumulative, "(x[0], -1)"),
                         .call = [=](In x) { return scan(x[0], -1); },
                         .rows = {{distinct({3, 4})},
                                  {distinct({3, 67})},
                                  {distinct({0, 4})},
                                  {distinct({4, 0})},
                                  {distinct({})}},
                         .large = {distinct({67, 263})},
                         .twice = true});
        cases.push_back({.name = cumulative + "/first",
                         .torch = str("torch.", cumulative, "(x[0], 0)"),
                         .call = [=](In x) { return scan(x[0], 0); },
                         .rows = {{distinct({7, 3})}, {distinct({5, 2, 3})}},
                         .twice = true});
        plain(cases, cumulative + "/other", str("torch.", cumulative, "(x[0], -1)"),
              {{ties({3, 67})},
               {ints({3, 67}, -3, 3)},
               {ints({9}, 0, 5, u8)},
               {specials({3, 11})},
               {specials({2, 67})},
               {mask({3, 9})}},
              [=](In x) { return scan(x[0], -1); });
        refuses<IndexError>(cases, cumulative, {"1"}, [=] { scan(floats_of({2}), 1); });
    }
    cases.push_back({.name = "aminmax",
                     .torch = "torch.aminmax(x[0], dim=-1)",
                     .call = [](In x) { return aminmax(x[0], -1); },
                     .rows = {{distinct({3, 4})}, {distinct({3, 67})}, {distinct({0, 4})}},
                     .twice = true});
    cases.push_back({.name = "aminmax/all",
                     .torch = "torch.aminmax(x[0])",
                     .call = [](In x) { return aminmax(x[0]); },
                     .rows = {{distinct({3, 5})}},
                     .twice = true});
    plain(
        cases, "aminmax/ties", "torch.aminmax(x[0], dim=0, keepdim=True)", {{ties({9, 4})}},
        [](In x) { return aminmax(x[0], 0, true); }, true);
    refuses<ValueError>(cases, "aminmax", {"[0]"}, [] { aminmax(floats_of({0})); });

    cases.push_back({.name = "clamp/tensors",
                     .torch = "torch.clamp(x[0], x[1], x[2])",
                     .call = [](In x) { return clamp(x[0], x[1], x[2]); },
                     .rows = {{floats({3, 67}), floats({67}, -1, 0), floats({3, 1}, 0, 1)},
                              {floats({0, 3}), floats({3}), floats({})},
                              {floats({9}), floats({9}), floats({9})}},
                     .twice = true});
    cases.push_back({.name = "clamp/lower",
                     .torch = "torch.clamp(x[0], min=x[1])",
                     .call = [](In x) { return clamp(x[0], x[1], {}); },
                     .rows = {{floats({3, 4}), floats({4})}},
                     .twice = true});
    plain(
        cases, "clamp/tensor_ties", "torch.clamp(x[0], x[1], x[2])",
        {{ties({125}), ties({125}), ties({125})}}, [](In x) { return clamp(x[0], x[1], x[2]); },
        true);
    plain(cases, "clamp/tensor_specials", "torch.clamp(x[0], x[1], x[2])",
          {{specials({11}), specials({11, 1}), specials({11, 1, 1})}},
          [](In x) { return clamp(x[0], x[1], x[2]); });
    plain(cases, "clamp/tensor_ints", "torch.clamp(x[0], x[1], x[2])",
          {{ints({5}, -9, 9), ints({5}, -3, 0), ints({5}, 0, 3)}},
          [](In x) { return clamp(x[0], x[1], x[2]); });
    refuses<ValueError>(cases, "clamp", {}, [] { clamp(floats_of({2}), Tensor(), Tensor()); });
}

void medians(Cases& cases) {
    for (const bool ignore : {false, true}) {
        const std::string name = ignore ? "nanmedian" : "median";
        const auto whole = [=](const Tensor& x) { return ignore ? nanmedian(x) : median(x); };
        const auto along = [=](const Tensor& x, std::int64_t dim, bool keep) {
            return ignore ? nanmedian(x, dim, keep) : median(x, dim, keep);
        };
        cases.push_back({.name = name,
                         .torch = str("torch.", name, "(x[0])"),
                         .call = [=](In x) { return whole(x[0]); },
                         .rows = {{distinct({3, 4})}, {distinct({3, 67})}, {distinct({})}}});
        plain(cases, name + "/nothing", str("torch.", name, "(x[0])"), {{floats({0, 3})}},
              [=](In x) { return whole(x[0]); });
        plain(
            cases, name + "/ties", str("torch.", name, "(x[0])"), {{ties({3, 5})}, {ties({67})}},
            [=](In x) { return whole(x[0]); }, true);
        cases.push_back({.name = name + "/last",
                         .torch = str("torch.", name, "(x[0], -1)"),
                         .call = [=](In x) { return along(x[0], -1, false); },
                         .rows = {{distinct({3, 4})},
                                  {distinct({3, 67})},
                                  {distinct({0, 4})},
                                  {distinct({4, 1})},
                                  {distinct({})}},
                         .large = {distinct({67, 263})},
                         .twice = true});
        cases.push_back({.name = name + "/first",
                         .torch = str("torch.", name, "(x[0], 0, keepdim=True)"),
                         .call = [=](In x) { return along(x[0], 0, true); },
                         .rows = {{distinct({5, 3})}, {distinct({4, 2, 3})}},
                         .twice = true});
        // The indices of equal elements differ from PyTorch's.
        plain(cases, name + "/other", str("torch.", name, "(x[0], -1).values"),
              {{ints({3, 67}, -9, 9)},
               {ints({4, 9}, 0, 200, u8)},
               {ties({3, 6})},
               {specials({3, 11})},
               {specials({7, 2})}},
              [=](In x) { return along(x[0], -1, false).first; });
        plain(cases, name + "/nan", str("torch.", name, "(torch.sqrt(x[0]), -1).values"),
              {{floats({9, 5})}, {floats({3, 67}, -2, 8)}, {floats({2, 3}, -2, -1)}},
              [=](In x) { return along(sqrt(x[0]), -1, false).first; });
        refuses<ValueError>(cases, name, {"[0, 3]"}, [=] { along(floats_of({0, 3}), 0, false); });
        refuses<ValueError>(cases, name, {"int64"}, [=] { whole(ints_of({0})); });
    }
}

void ranks(Cases& cases) {
    const auto kth = [&](const std::string& name, std::int64_t k, std::int64_t dim, bool keep,
                         std::vector<Row> rows) {
        cases.push_back(
            {.name = name,
             .torch = str("torch.kthvalue(x[0], ", k, ", ", dim, keep ? ", True)" : ", False)"),
             .call = [=](In x) { return kthvalue(x[0], k, dim, keep); },
             .rows = std::move(rows),
             .twice = true});
    };
    kth("kthvalue", 2, -1, false,
        {{distinct({3, 4})}, {distinct({3, 67})}, {distinct({0, 4})}, {distinct({2})}});
    kth("kthvalue/middle", 34, -1, false, {{distinct({3, 67})}});
    kth("kthvalue/largest", 66, -1, true, {{distinct({3, 67})}});
    kth("kthvalue/first", 3, 0, true, {{distinct({5, 3})}, {distinct({3, 2, 3})}});
    plain(cases, "kthvalue/other", "torch.kthvalue(x[0], 9, -1).values",
          {{ints({3, 67}, -9, 9)}, {specials({3, 11})}, {ties({2, 9})}},
          [](In x) { return kthvalue(x[0], 9).first; });
    refuses<ValueError>(cases, "kthvalue", {"[1, 3]", "4"}, [] { kthvalue(floats_of({2, 3}), 4); });
    refuses<ValueError>(cases, "kthvalue", {"[1, 3]", "0"}, [] { kthvalue(floats_of({2, 3}), 0); });

    plain(cases, "mode", "torch.mode(x[0], -1).values",
          {{ties({3, 9})}, {ties({3, 67})}, {ties({0, 3})}, {ties({4, 1})}, {ties({})}},
          [](In x) { return mode(x[0]).first; });
    plain(cases, "mode/other", "torch.mode(x[0], 0, True).values",
          {{ints({67, 3}, -3, 3)}, {ints({9}, 0, 4, u8)}, {specials({22})}},
          [](In x) { return mode(x[0], 0, true).first; });
    cases.push_back({.name = "mode/index",
                     .call = [](In x) { return mode(x[0], 1).second; },
                     .rows = {{ties({9, 7})}},
                     .gradient = false,
                     .check = [](In x, const Outputs& y) -> std::string {
                         const Tensor at = gather(x[0], 1, unsqueeze(y[0], 1));
                         return all(eq(squeeze(at, 1), mode(x[0], 1).first)).item<bool>()
                                    ? ""
                                    : "the index is not the position of the value";
                     }});
    refuses<ValueError>(cases, "mode", {"[3, 0]"}, [] { mode(floats_of({3, 0})); });
    refuses<ValueError>(cases, "mode", {"[0, 0]"}, [] { mode(floats_of({0, 0})); });
}

void quantiles(Cases& cases) {
    using enum QuantileInterpolation;
    const std::pair<const char*, QuantileInterpolation> hows[] = {{"linear", linear},
                                                                  {"lower", lower},
                                                                  {"higher", higher},
                                                                  {"midpoint", midpoint},
                                                                  {"nearest", nearest}};
    for (const bool ignore : {false, true}) {
        const std::string name = ignore ? "nanquantile" : "quantile";
        const auto at = [=](const Tensor& x, auto q, std::optional<std::int64_t> dim, bool keep,
                            QuantileInterpolation how) {
            return ignore ? nanquantile(x, q, dim, keep, how) : quantile(x, q, dim, keep, how);
        };
        for (const auto& [text, how] : hows) {
            const QuantileInterpolation kind = how;
            cases.push_back(
                {.name = kind == linear ? name : str(name, "/", text),
                 .torch = str("torch.", name, "(x[0], 0.3, -1, interpolation='", text, "')"),
                 .call = [=](In x) { return at(x[0], 0.3, -1, false, kind); },
                 .rows = {{distinct({3, 4})}, {distinct({3, 67})}, {distinct({})}},
                 .twice = true});
        }
        cases.push_back({.name = name + "/all",
                         .torch = str("torch.", name, "(x[0], 0.75, keepdim=True)"),
                         .call = [=](In x) { return at(x[0], 0.75, {}, true, linear); },
                         .rows = {{distinct({3, 5})}},
                         .twice = true});
        cases.push_back({.name = name + "/several",
                         .torch = str("torch.", name, "(x[0], x[1], 0, True)"),
                         .call = [=](In x) { return at(x[0], x[1], 0, true, linear); },
                         .rows = {{distinct({5, 3}), floats({4}, 0, 0.75)},
                                  {distinct({7, 2, 3}), floats({}, 0, 0.75)},
                                  {distinct({7, 2}), floats({0}, 0, 0.75)}},
                         .twice = true});
        cases.push_back({.name = name + "/several_of_all",
                         .torch = str("torch.", name, "(x[0], x[1])"),
                         .call = [=](In x) { return at(x[0], x[1], {}, false, linear); },
                         .rows = {{distinct({5, 3}), frozen(floats({4}, 0, 0.75))}}});
        plain(cases, name + "/nan", str("torch.", name, "(torch.sqrt(x[0]), 0.3, -1)"),
              {{floats({9, 5})}, {floats({3, 67}, -2, 8)}, {floats({2, 3}, -2, -1)}},
              [=](In x) { return at(sqrt(x[0]), 0.3, -1, false, linear); });
        refuses<ValueError>(cases, name, {"1.5"},
                            [=] { at(floats_of({2}), 1.5, {}, false, linear); });
        refuses<ValueError>(cases, name, {"[0]"},
                            [=] { at(floats_of({0}), 0.5, {}, false, linear); });
        refuses<ValueError>(cases, name, {"2"},
                            [=] { at(floats_of({2}), full({1}, 2.0), {}, false, linear); });
        refuses<DTypeError>(cases, name, {"int64"},
                            [=] { at(ints_of({2}), 0.5, {}, false, linear); });
    }
}

void counts(Cases& cases) {
    plain(cases, "histc", "torch.histc(x[0], 5, -1, 1)",
          {{floats({3, 67})}, {floats({0})}, {ties({9})}, {specials({11})}},
          [](In x) { return histc(x[0], 5, -1, 1); });
    plain(cases, "histc/range", "torch.histc(x[0], 4)", {{ties({67})}, {ties({1})}, {floats({0})}},
          [](In x) { return histc(x[0], 4); });
    refuses<ValueError>(cases, "histc", {"0"}, [] { histc(floats_of({2}), 0); });
    refuses<ValueError>(cases, "histc", {"low 2", "high 1"},
                        [] { histc(floats_of({2}), 3, 2, 1); });
    refuses<DTypeError>(cases, "histc", {"int64"}, [] { histc(ints_of({2})); });

    plain(cases, "bincount", "torch.bincount(x[0])",
          {{ints({67}, 0, 9)}, {ints({9}, 0, 4, i32)}, {ints({9}, 0, 200, u8)}, {ints({0}, 0, 9)}},
          [](In x) { return bincount(x[0]); })
        .reads_values = true;
    plain(cases, "bincount/weights", "torch.bincount(x[0], x[1], 12)",
          {{ints({67}, 0, 9), ints({67}, -9, 9)}}, [](In x) { return bincount(x[0], x[1], 12); })
        .reads_values = true;
    refuses<ValueError>(cases, "bincount", {"-1"}, [] { bincount(indices({1, -1})); });
    refuses<ValueError>(cases, "bincount", {"-2"}, [] { bincount(indices({1}), {}, -2); });
    refuses<ShapeError>(cases, "bincount", {"[2]", "[1]"},
                        [] { bincount(indices({1}), floats_of({2})); });
    refuses<ShapeError>(cases, "bincount", {"[2, 2]"}, [] { bincount(ints_of({2, 2})); });
    refuses<DTypeError>(cases, "bincount", {"float32"}, [] { bincount(floats_of({2})); });
    refuses<DeviceError>(cases, "bincount", {"meta"}, [] {
        bincount(ones({2}, {i64, Device::meta()}));
    });

    const auto parts = [](const UniqueElements& u) {
        return Outputs(std::vector<Tensor>{u.values, u.inverse, u.counts});
    };
    for (const bool sorted : {true, false}) {
        const std::string name = sorted ? "unique" : "unique_consecutive";
        const auto f = [=](const Tensor& x, std::optional<std::int64_t> dim) {
            return parts(sorted ? unique(x, dim) : unique_consecutive(x, dim));
        };
        const std::string torch = str("torch.", name, "(x[0], ", sorted ? "sorted=True, " : "",
                                      "return_inverse=True, return_counts=True");
        plain(cases, name, torch + ")",
              {{ties({67})},
               {ties({3, 4})},
               {ties({0, 3})},
               {ties({})},
               {ints({3, 67}, -9, 9)},
               {ints({67}, 0, 9, u8)},
               {mask({9})}},
              [=](In x) { return f(x[0], {}); })
            .reads_values = true;
        plain(cases, name + "/rows", torch + ", dim=0)",
              {{ties({67, 2})}, {ints({67, 2}, 0, 3)}, {mask({9, 2, 2})}, {ties({5})}},
              [=](In x) { return f(x[0], 0); })
            .reads_values = true;
        plain(cases, name + "/columns", torch + ", dim=1)", {{ties({1, 9, 2})}, {mask({2, 9})}},
              [=](In x) { return f(x[0], 1); })
            .reads_values = true;
        refuses<DeviceError>(cases, name, {"meta"}, [=] {
            f(ones({2}, {i64, Device::meta()}), {});
        });
        refuses<ShapeError>(cases, name, {"[2, 0]"}, [=] { f(floats_of({2, 0}), 0); });
        refuses<IndexError>(cases, name, {"1"}, [=] { f(floats_of({2}), 1); });
    }
}

void positions(Cases& cases) {
    for (const bool right : {false, true}) {
        const std::string variant = right ? "/right" : "", flag = right ? ", right=True)" : ")";
        plain(cases, "searchsorted" + variant,
              "torch.searchsorted(torch.sort(x[0]).values, x[1]" + flag,
              {{ties({7}), ties({67})},
               {floats({67}), floats({3, 5})},
               {ties({64}), floats({0})},
               {ties({3, 9}), ties({3, 67})},
               {ties({0}), ties({3})},
               {ints({67}, -9, 9), ints({2, 9}, -12, 12)},
               {ties({5}), specials({11})},
               {ties({5}), ties({})}},
              [=](In x) { return searchsorted(sort(x[0]).first, x[1], right); });
        plain(cases, "bucketize" + variant, "torch.bucketize(x[0], torch.sort(x[1]).values" + flag,
              {{ties({3, 67}), ties({5})}, {ties({0}), ties({3})}, {floats({9}), ties({1})}},
              [=](In x) { return bucketize(x[0], sort(x[1]).first, right); });
    }
    plain(cases, "searchsorted/sorter",
          "torch.searchsorted(x[0], x[1], sorter=torch.argsort(x[0]))",
          {{distinct({2, 9}), distinct({2, 5})}},
          [](In x) { return searchsorted(x[0], x[1], false, argsort(x[0])); });
    plain(cases, "searchsorted/number", "torch.searchsorted(torch.sort(x[0]).values, 0.25)",
          {{ties({9})}}, [](In x) { return searchsorted(sort(x[0]).first, 0.25); });
    refuses<ShapeError>(cases, "searchsorted", {"[2, 3]", "[3, 3]"}, [] {
        searchsorted(floats_of({2, 3}), floats_of({3, 3}));
    });
    refuses<ShapeError>(cases, "searchsorted", {"[3]", "[2]"},
                        [] { searchsorted(floats_of({3}), floats_of({3}), false, ints_of({2})); });
    refuses<ShapeError>(cases, "bucketize", {"[2, 3]"}, [] {
        bucketize(floats_of({3}), floats_of({2, 3}));
    });
}

}  // namespace

void add_statistics_cases(Cases& cases) {
    extremes(cases);
    medians(cases);
    ranks(cases);
    quantiles(cases);
    counts(cases);
    positions(cases);
}

}  // namespace axle::tests
