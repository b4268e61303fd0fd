#include "core/products.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "core/linalg.h"
#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

// Tolerances for sums of products. Half precision also rounds the operands of the backward pass.
const Tolerances kProducts = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2};

// Adds a case whose gradients can be differentiated again.
OpCase& product(Cases& cases, const std::string& name, const std::string& torch,
                std::vector<Row> rows, std::function<Outputs(In)> call) {
    cases.push_back({.name = name,
                     .torch = torch,
                     .call = std::move(call),
                     .rows = std::move(rows),
                     .twice = true,
                     .layout_bits = false,
                     .tolerance = kProducts});
    return cases.back();
}

using Two = Tensor (*)(const Tensor&, const Tensor&);

void pairs_of_operands(Cases& cases) {
    const auto pair = [](const Shape& a, const Shape& b) { return Row{floats(a), floats(b)}; };
    const auto add = [&](const std::string& name, Two f, std::vector<Row> rows, const Shape& a,
                         const Shape& b, Row whole) {
        product(cases, name, str("torch.", name, "(x[0], x[1])"), std::move(rows),
                [=](In x) { return f(x[0], x[1]); });
        product(cases, name + "/ints", str("torch.", name, "(x[0], x[1])"), {std::move(whole)},
                [=](In x) { return f(x[0], x[1]); })
            .gradient = false;
        refuses<ShapeError>(cases, name, {str(a), str(b)}, [=] { f(floats_of(a), floats_of(b)); });
        refuses<UsageError>(cases, name, {}, [=] { f(floats_of(a), Tensor()); });
    };
    add("bmm", bmm,
        {pair({2, 3, 4}, {2, 4, 5}), pair({2, 3, 67}, {2, 67, 5}), pair({0, 3, 4}, {0, 4, 5}),
         pair({2, 3, 0}, {2, 0, 5})},
        {2, 3, 4}, {3, 4, 5}, {ints({2, 3, 4}, -9, 9), ints({2, 4, 3}, -9, 9)});
    add("mm", mm, {pair({3, 4}, {4, 5}), pair({3, 67}, {67, 5}), pair({0, 4}, {4, 5})}, {3, 4},
        {3, 4}, {ints({3, 4}, -9, 9, i32), ints({4, 3}, -9, 9, i32)});
    add("mv", mv, {pair({3, 4}, {4}), pair({3, 67}, {67}), pair({3, 0}, {0})}, {3, 4}, {3},
        {ints({3, 4}, -9, 9), ints({4}, -9, 9)});
    add("dot", dot, {pair({4}, {4}), pair({67}, {67}), pair({0}, {0})}, {3}, {4},
        {ints({9}, -9, 9), ints({9}, -9, 9)});
    add("outer", outer, {pair({3}, {4}), pair({3}, {67}), pair({0}, {4})}, {3, 1}, {4},
        {ints({3}, -9, 9), ints({4}, -9, 9)});
    add("kron", kron,
        {pair({3}, {4}), pair({2, 3}, {3, 67}), pair({2, 3, 2}, {3}), pair({}, {2, 2}),
         pair({0}, {4})},
        {2, 2, 2, 2, 2}, {3}, {ints({3, 2}, -9, 9), ints({4}, -9, 9)});
    refuses<DTypeError>(cases, "mm", {"float32", "float64"}, [] {
        mm(floats_of({2, 2}), ones({2, 2}, {f64}));
    });
    refuses<DTypeError>(cases, "dot", {"booleans"}, [] { dot(bools_of({2}), bools_of({2})); });
    refuses<ShapeError>(cases, "bmm", {"[2, 2]"}, [] {
        bmm(floats_of({2, 2}), floats_of({2, 2, 2}));
    });
}

void scaled_sums(Cases& cases) {
    using Three = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, Scalar, Scalar);
    const auto add = [&](const std::string& name, Three f, const Shape& a, const Shape& b,
                         const std::vector<Shape>& sums, const Shape& empty_x, const Shape& empty_a,
                         const Shape& empty_b, const Shape& bad) {
        std::vector<Row> rows;
        for (const Shape& sum : sums) rows.push_back({floats(sum), floats(a), floats(b)});
        rows.push_back({floats(empty_x), floats(empty_a), floats(empty_b)});
        product(cases, name, str("torch.", name, "(x[0], x[1], x[2], beta=0.5, alpha=-2)"), rows,
                [=](In x) { return f(x[0], x[1], x[2], 0.5, -2); });
        product(cases, name + "/plain", str("torch.", name, "(x[0], x[1], x[2])"), {rows[0]},
                [=](In x) { return f(x[0], x[1], x[2], 1, 1); });
        // If beta is 0, NaN in x has no effect.
        product(cases, name + "/zero",
                str("torch.", name, "(torch.sqrt(x[0]), x[1], x[2], beta=0)"),
                {{frozen(floats(sums[0])), floats(a), floats(b)}},
                [=](In x) { return f(sqrt(x[0]), x[1], x[2], 0, 1); });
        refuses<ShapeError>(cases, name, {str(bad)},
                            [=] { f(floats_of(bad), floats_of(a), floats_of(b), 1, 1); });
        refuses<ShapeError>(cases, name, {str(b), str(bad)},
                            [=] { f(floats_of({1}), floats_of(b), floats_of(bad), 1, 1); });
        refuses<DTypeError>(cases, name, {"int64"},
                            [=] { f(ints_of({1}), ints_of(a), ints_of(b), 0.5, 1); });
    };
    add("addmm", addmm, {3, 67}, {67, 5}, {{3, 5}, {5}, {3, 1}}, {1}, {0, 4}, {4, 3}, {7});
    add("addmv", addmv, {3, 67}, {67}, {{3}, {1}}, {2}, {2, 0}, {0}, {7});
    add("addr", addr, {3}, {67}, {{3, 67}, {67}, {}}, {1}, {0}, {4}, {7, 1});
    add("baddbmm", baddbmm, {2, 3, 67}, {2, 67, 5}, {{2, 3, 5}, {3, 5}, {5}}, {1}, {2, 0, 4},
        {2, 4, 3}, {7});
    add("addbmm", addbmm, {2, 3, 67}, {2, 67, 5}, {{3, 5}, {5}}, {1}, {0, 2, 4}, {0, 4, 3}, {7});
}

void chains(Cases& cases) {
    for (const int n : {3, 0, 1, 2, 5})
        product(cases, n == 3 ? "matrix_power" : str("matrix_power/", n),
                str("torch.linalg.matrix_power(x[0], ", n, ")"),
                {{floats({3, 3}, -1, 1)},
                 {floats({2, 4, 4}, -1, 1)},
                 {floats({7, 7}, -0.5, 0.5)},
                 {floats({0, 3, 3})}},
                [=](In x) { return matrix_power(x[0], n); });
    refuses<ShapeError>(cases, "matrix_power", {"[2, 3]"}, [] {
        matrix_power(floats_of({2, 3}), 2);
    });
    refuses<linalg::LinAlgError>(cases, "matrix_power", {"(Batch element 0)", "singular"}, [] {
        matrix_power(zeros({2, 3, 3}), -1);
    });
    const auto row = [](const std::vector<Shape>& shapes) {
        Row operands;
        for (const Shape& s : shapes) operands.push_back(floats(s, -1, 1));
        return operands;
    };
    product(cases, "multi_dot", "torch.linalg.multi_dot(x)",
            {row({{3, 4}, {4, 5}}), row({{9, 2}, {2, 7}, {7, 5}}), row({{3}, {3, 9}, {9, 2}, {2}}),
             row({{3, 0}, {0, 4}}), row({{3, 17}, {17, 2}, {2}})},
            [](In x) { return multi_dot(x); });
    product(cases, "chain_matmul", "torch.chain_matmul(*x)",
            {row({{3, 4}, {4, 5}, {5, 2}}), row({{9, 17}, {17, 3}, {3, 8}, {8, 2}}),
             row({{0, 4}, {4, 5}})},
            [](In x) { return chain_matmul(x); });
    refuses<ShapeError>(cases, "multi_dot", {"operands 0 and 1", "[3, 4]", "[3, 5]"}, [] {
        multi_dot({floats_of({3, 4}), floats_of({3, 5})});
    });
    refuses<ValueError>(cases, "multi_dot", {"1"}, [] { multi_dot({floats_of({3, 4})}); });
    refuses<ShapeError>(cases, "chain_matmul", {"operand 1", "[4]"}, [] {
        chain_matmul({floats_of({3, 4}), floats_of({4})});
    });
}

void chosen_dimensions(Cases& cases) {
    product(cases, "cross", "torch.linalg.cross(x[0], x[1])",
            {{floats({4, 3}), floats({4, 3})},
             {floats({13, 1, 3}), floats({1, 3, 3})},
             {floats({0, 3}), floats({1, 3})}},
            [](In x) { return cross(x[0], x[1], -1); });
    product(cases, "cross/first", "torch.cross(x[0], x[1])",
            {{floats({3, 17}), floats({3, 17})}, {floats({2, 3, 3}), floats({2, 3, 3})}},
            [](In x) { return cross(x[0], x[1]); });
    refuses<ShapeError>(cases, "cross", {"[2, 4]"}, [] {
        cross(floats_of({2, 4}), floats_of({4}));
    });
    refuses<ShapeError>(cases, "cross", {"[2, 1]"}, [] {
        cross(floats_of({2, 1}), floats_of({2, 3}), 1);
    });
    product(cases, "tensordot", "torch.tensordot(x[0], x[1], 2)",
            {{floats({2, 3, 4}), floats({3, 4, 5})},
             {floats({3, 67}), floats({3, 67})},
             {floats({0, 3, 4}), floats({3, 4})}},
            [](In x) { return tensordot(x[0], x[1]); });
    product(cases, "tensordot/none", "torch.tensordot(x[0], x[1], 0)",
            {{floats({2, 3}), floats({4})}}, [](In x) { return tensordot(x[0], x[1], 0); });
    product(cases, "tensordot/dims", "torch.tensordot(x[0], x[1], ([2, 0], [0, -1]))",
            {{floats({2, 3, 4}), floats({4, 5, 2})}, {floats({2, 3, 1}), floats({4, 5, 2})}},
            [](In x) {
                return tensordot(x[0], x[1], {2, 0}, {0, -1});
            });
    refuses<ShapeError>(cases, "tensordot", {"[2, 3]", "[4, 3]"}, [] {
        tensordot(floats_of({2, 3}), floats_of({4, 3}), 1);
    });
    refuses<ValueError>(cases, "tensordot", {"3"}, [] {
        tensordot(floats_of({2, 3}), floats_of({2, 3}), 3);
    });
    refuses<ValueError>(cases, "tensordot", {"duplicate"}, [] {
        tensordot(floats_of({2, 2}), floats_of({2, 2}), {0, 0}, {0, 1});
    });
}

void equations(Cases& cases) {
    const auto add = [&](const std::string& name, const std::string& equation,
                         const std::vector<std::vector<Shape>>& rows) {
        std::vector<Row> inputs;
        for (const auto& shapes : rows) {
            Row& row = inputs.emplace_back();
            for (const Shape& s : shapes) row.push_back(floats(s, -1, 1));
        }
        product(cases, name, str("torch.einsum('", equation, "', *x)"), std::move(inputs),
                [=](In x) { return einsum(equation, x); });
    };
    add("einsum", "bij,bjk->bik",
        {{{2, 3, 4}, {2, 4, 5}},
         {{2, 3, 67}, {2, 67, 5}},
         {{0, 3, 4}, {0, 4, 5}},
         {{1, 3, 4}, {2, 4, 5}},
         {{2, 3, 1}, {2, 4, 5}}});
    add("einsum/implicit", "bA, Ac", {{{2, 3}, {3, 4}}});
    add("einsum/inner", "i,i->", {{{5}, {5}}, {{67}, {67}}});
    add("einsum/elementwise", "ij,ij->ji", {{{3, 4}, {3, 4}}});
    add("einsum/outer", "i,j->ji", {{{3}, {4}}});
    add("einsum/summed", "ijk,kl->l", {{{2, 3, 4}, {4, 5}}});
    add("einsum/diagonals", "iij,jkk->i", {{{3, 3, 2}, {2, 4, 4}}});
    add("einsum/ellipsis", "...ij,...jk->...ik",
        {{{2, 3, 4}, {2, 4, 5}}, {{3, 4}, {2, 4, 5}}, {{2, 1, 3, 4}, {7, 4, 5}}, {{3, 4}, {4, 5}}});
    add("einsum/implicit_ellipsis", "i...j,j...", {{{3, 2, 4}, {4, 2}}, {{3, 4}, {4, 2}}});
    add("einsum/summed_ellipsis", "...i,i->i", {{{2, 3, 4}, {4}}});
    add("einsum/several", "ab,bc,cd,ae->de",
        {{{2, 3}, {3, 4}, {4, 5}, {2, 6}}, {{2, 1}, {3, 4}, {1, 5}, {2, 6}}});
    add("einsum/bilinear", "bn,anm,bm->ba", {{{3, 4}, {2, 4, 5}, {3, 5}}});
    add("einsum/attention", "bqhd,bkhd->bhqk", {{{2, 3, 2, 4}, {2, 5, 2, 4}}});
    for (const auto& [name, equation, shape] :
         {std::tuple<const char*, const char*, Shape>{"einsum/transpose", "ij->ji", {3, 4}},
          {"einsum/row_sums", "ij->i", {3, 4}},
          {"einsum/trace", "ii", {4, 4}},
          {"einsum/diagonal", "...ii->...i", {2, 3, 3}},
          {"einsum/triple", "iiji->ij", {3, 3, 2, 3}},
          {"einsum/new_ellipsis", "ij->...ij", {2, 3}}}) {
        add(name, equation, {{shape}});
    }
    product(cases, "einsum/ints", "torch.einsum('ij,jk->ik', *x)",
            {{ints({3, 4}, -9, 9), ints({4, 3}, -9, 9)}},
            [](In x) { return einsum("ij,jk->ik", x); })
        .gradient = false;

    const auto refused = [&]<class E>(E*, std::vector<std::string> words, const char* equation,
                                      const std::vector<Shape>& shapes) {
        refuses<E>(
            cases, "einsum", std::move(words),
            [=] {
                std::vector<Tensor> operands;
                for (const Shape& s : shapes) operands.push_back(floats_of(s));
                einsum(equation, operands);
            },
            str("einsum: '", equation, "': "));
    };
    const auto value = static_cast<ValueError*>(nullptr);
    const auto shape = static_cast<ShapeError*>(nullptr);
    refused(value, {"operands must be 2", "1"}, "ij,jk", {{2, 3}});
    refused(value, {"operand 1", "'1'"}, "ij,j1", {{2, 3}, {3, 4}});
    refused(value, {"operand 0", "ellipsis"}, "...i...", {{2, 3}});
    refused(value, {"'.'"}, "i.j", {{2, 3}});
    refused(value, {"output", "'i'"}, "ij->ii", {{2, 3}});
    refused(value, {"'k'", "output"}, "ij->k", {{2, 3}});
    refused(shape, {"operand 1", "3", "[3, 4]"}, "ij,jkl", {{2, 3}, {3, 4}});
    refused(shape, {"operand 0", "1", "[2, 3]"}, "i,j", {{2, 3}, {3}});
    refused(shape, {"operand 1", "'j'", "4", "3"}, "ij,jk", {{2, 3}, {4, 5}});
    refused(shape, {"operand 0", "'i'", "[2, 3]"}, "ii", {{2, 3}});
    refuses<DTypeError>(cases, "einsum", {"float32", "float64"}, [] {
        einsum("i,i", {floats_of({2}), ones({2}, {f64})});
    });
}

void distances(Cases& cases) {
    const double infinity = std::numeric_limits<double>::infinity();
    const std::pair<const char*, double> orders[] = {
        {"2", 2}, {"1", 1}, {"3", 3}, {"inf", infinity}, {"0", 0}};
    for (const auto& [text, p] : orders) {
        const double order = p;
        product(cases, p == 2 ? "cdist" : str("cdist/", text),
                str("torch.cdist(x[0], x[1], p=", text, ")"),
                {{floats({3, 4}), floats({5, 4})},
                 {floats({2, 3, 5}), floats({4, 5})},
                 {floats({3, 0}), floats({5, 0})},
                 {floats({0, 4}), floats({5, 4})}},
                [order](In x) { return cdist(x[0], x[1], order); });
        // Some rows are equal: the gradient of their distance is 0. If p is inf, PyTorch's gradient
        // of several equal differences is too large, so the rows have one element.
        product(cases, str("cdist/equal/", text), str("torch.cdist(x[0], x[1], p=", text, ")"),
                std::isinf(order)
                    ? std::vector<Row>{{ties({9, 1}), ties({5, 1})}}
                    : std::vector<Row>{{ties({9, 1}), ties({5, 1})}, {ties({9, 2}), ties({9, 2})}},
                [order](In x) { return cdist(x[0], x[1], order); })
            .smooth = false;
    }
    // As in PyTorch, if p is 2 and an operand has more than 25 rows, the distances are computed by
    // a matrix product, which loses digits.
    product(cases, "cdist/many", "torch.cdist(x[0], x[1])", {{floats({30, 4}), floats({29, 4})}},
            [](In x) { return cdist(x[0], x[1]); })
        .tolerance = {.f32 = 1e-4, .f16 = 3e-2, .bf16 = 0.2};
    refuses<ShapeError>(cases, "cdist", {"[3, 4]", "[3, 5]"}, [] {
        cdist(floats_of({3, 4}), floats_of({3, 5}));
    });
    refuses<ValueError>(cases, "cdist", {"-1"}, [] {
        cdist(floats_of({3, 4}), floats_of({3, 4}), -1);
    });
    refuses<DTypeError>(cases, "cdist", {"int64"}, [] { cdist(ints_of({3, 4}), ints_of({3, 4})); });

    const std::vector<Row> rows = {{floats({3, 4}), floats({3, 4})},
                                   {floats({3, 67}), floats({67})},
                                   {floats({2, 1, 5}), floats({3, 5})},
                                   {floats({0, 4}), floats({4})}};
    product(cases, "pairwise_distance", "F.pairwise_distance(x[0], x[1])", rows,
            [](In x) { return pairwise_distance(x[0], x[1]); });
    product(cases, "pairwise_distance/1", "F.pairwise_distance(x[0], x[1], 1, 0.25, True)", rows,
            [](In x) { return pairwise_distance(x[0], x[1], 1, 0.25, true); });
    refuses<ShapeError>(cases, "pairwise_distance", {"[2]", "[3]"},
                        [] { pairwise_distance(floats_of({2}), floats_of({3})); });
    product(cases, "cosine_similarity", "F.cosine_similarity(x[0], x[1], -1)", rows,
            [](In x) { return cosine_similarity(x[0], x[1], -1); });
    product(cases, "cosine_similarity/first", "F.cosine_similarity(x[0], x[1], 0)",
            {{floats({4, 3}), floats({4, 3})}},
            [](In x) { return cosine_similarity(x[0], x[1], 0); });
    product(cases, "cosine_similarity/zeros", "F.cosine_similarity(x[0], x[1], 1, 0.5)",
            {{ties({25, 2}), ties({25, 2})}},
            [](In x) { return cosine_similarity(x[0], x[1], 1, 0.5); })
        .smooth = false;
    refuses<ShapeError>(cases, "cosine_similarity", {"[2]", "[3]"},
                        [] { cosine_similarity(floats_of({2}), floats_of({3}), 0); });
    refuses<DTypeError>(cases, "cosine_similarity", {"int64"},
                        [] { cosine_similarity(ints_of({2}), ints_of({2}), 0); });
    product(cases, "normalize", "F.normalize(x[0])",
            {{floats({3, 4})}, {floats({3, 67})}, {floats({2, 3, 4})}, {floats({0, 3})}},
            [](In x) { return normalize(x[0]); });
    product(cases, "normalize/3", "F.normalize(x[0], 3, 0, 0.5)", {{floats({4, 3})}},
            [](In x) { return normalize(x[0], 3, 0, 0.5); });
    product(cases, "normalize/zeros", "F.normalize(x[0], 2, 1, 0.5)", {{ties({25, 2})}}, [](In x) {
        return normalize(x[0], 2, 1, 0.5);
    }).smooth = false;
    refuses<IndexError>(cases, "normalize", {"1"}, [] { normalize(floats_of({2})); });
    refuses<DTypeError>(cases, "normalize", {"int64"}, [] { normalize(ints_of({2, 2})); });
}

}  // namespace

void add_products_cases(Cases& cases) {
    pairs_of_operands(cases);
    scaled_sums(cases);
    chains(cases);
    chosen_dimensions(cases);
    const std::size_t first = cases.size();
    equations(cases);
    for (std::size_t i = first; i < cases.size(); ++i)
        if (cases[i].rows[0].size() > 1) cases[i].autocast = Autocast::low;
    case_named(cases, "einsum/row_sums").autocast = Autocast::f32;
    case_named(cases, "einsum/trace").autocast = Autocast::f32;
    distances(cases);
    set_autocast(cases, Autocast::low,
                 {"bmm", "mm", "mv", "addmm", "addmv", "addr", "baddbmm", "addbmm", "matrix_power",
                  "multi_dot", "chain_matmul"});
    for (const char* name : {"matrix_power/0", "matrix_power/1"})
        case_named(cases, name).autocast = Autocast::unchanged;
    set_autocast(cases, Autocast::widest, {"dot", "cross", "tensordot"});
    set_autocast(cases, Autocast::f32,
                 {"cdist", "pairwise_distance", "cosine_similarity", "normalize"});
}

}  // namespace axle::tests
