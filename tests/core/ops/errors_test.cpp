// Checks the errors for invalid arguments: the type, and a text that starts with the op's name and
// shows the operands.
#include "core/ops.h"
#include "tests/close.h"

namespace axle::tests {

namespace {

Tensor f(const Shape& shape) { return ones(shape); }
Tensor n(const Shape& shape) { return ones(shape, {i64}); }
Tensor b(const Shape& shape) { return ones(shape, {boolean}); }
Tensor index(const std::vector<std::int64_t>& values) {
    return tensor(values, {static_cast<std::int64_t>(values.size())});
}

TEST(CreationErrors, ShowShapeAndValues) {
    expect_error<ShapeError>({"tensor: ", "[2, 3]", "5"}, [] {
        tensor(std::vector<double>(5), {2, 3});
    });
    expect_error<ShapeError>({"tensor: ", "[3]", "2"}, [] {
        tensor(std::vector<std::int64_t>{1, 2}, {3});
    });
    expect_error<ShapeError>({"", "[2, -1]"}, [] { zeros({2, -1}); });
    expect_error<ShapeError>({""}, [] { empty({std::int64_t{1} << 40, std::int64_t{1} << 40}); });
    expect_error<ValueError>({"arange: ", "step"}, [] { arange(0, 5, 0); });
    expect_error<ValueError>({"arange: "}, [] { arange(0, 5, -1); });
}

TEST(RandomErrors, ShowNumbers) {
    expect_error<ValueError>({"randint: ", "3"}, [] { randint(3, 3, {2}); });
    expect_error<ValueError>({"dropout: ", "1.5"}, [] { dropout(f({2}), 1.5); });
    expect_error<ValueError>({"dropout: ", "-0.5"}, [] { dropout(f({2}), -0.5); });
    expect_error<Error>({"multinomial: ", "[3]", "4"}, [] { multinomial(f({3}), 4); });
    expect_error<Error>({"multinomial: "}, [] { multinomial(f({3}), 0); });
    expect_error<DTypeError>({"multinomial: ", "int64"}, [] { multinomial(n({3}), 1); });
    expect_error<ValueError>({"multinomial: "}, [] { multinomial(zeros({3}), 1); });
    expect_error<ValueError>({"multinomial: "}, [] { multinomial(full({3}, -1), 1); });
    expect_error<DTypeError>({"", "int64"}, [] { rand({3}, {i64}); });
    expect_error<DTypeError>({"", "int64"}, [] { randn({3}, {i64}); });
}

TEST(ViewErrors, ShowBothShapes) {
    expect_error<ShapeError>({"view: ", "[4, 6]", "[5, -1]"}, [] { view(f({4, 6}), {5, -1}); });
    expect_error<ShapeError>({"view: ", "[4, 6]", "[-1, -1]"}, [] { view(f({4, 6}), {-1, -1}); });
    expect_error<ShapeError>({"view: ", "[6, 4]", "[24]"}, [] {
        view(transpose(f({4, 6}), 0, 1), {24});
    });
    expect_error<ShapeError>({"reshape: ", "[4, 6]", "[5, 5]"}, [] { reshape(f({4, 6}), {5, 5}); });
    expect_error<ShapeError>({"reshape: ", "[0, 2]"}, [] { reshape(f({0, 2}), {-1, 0}); });
    expect_error<ShapeError>({"expand: ", "[2, 3]", "[2, 4]"}, [] { expand(f({2, 3}), {2, 4}); });
    expect_error<ShapeError>({"expand: ", "[2, 3]", "[3]"}, [] { expand(f({2, 3}), {3}); });
    expect_error<ShapeError>({"sum_to: ", "[2, 3]", "[4]"}, [] { sum_to(f({2, 3}), {4}); });
    expect_error<Error>({"permute: ", "[2, 3]", "[0]"}, [] { permute(f({2, 3}), {0}); });
    expect_error<Error>({"permute: ", "[1, 1]"}, [] { permute(f({2, 3}), {1, 1}); });
}

TEST(ViewErrors, ShowDimension) {
    expect_error<IndexError>({"transpose: ", "2"}, [] { transpose(f({2, 3}), 0, 2); });
    expect_error<IndexError>({"permute: ", "5"}, [] { permute(f({2, 3}), {0, 5}); });
    expect_error<IndexError>({"unsqueeze: ", "3"}, [] { unsqueeze(f({2}), 3); });
    expect_error<IndexError>({"squeeze: ", "-3"}, [] { squeeze(f({2, 3}), -3); });
    expect_error<IndexError>({"flatten: ", "2"}, [] { flatten(f({2, 3}), 2); });
    expect_error<Error>({"flatten: "}, [] { flatten(f({2, 3, 4}), 2, 1); });
    expect_error<IndexError>({"select: ", "3"}, [] { select(f({2, 3}), 1, 3); });
    expect_error<IndexError>({"select: ", "-3"}, [] { select(f({2, 3}), 0, -3); });
    expect_error<Error>({"select: ", "0-d"}, [] { select(f({}), 0, 0); });
    expect_error<IndexError>({"narrow: "}, [] { narrow(f({2, 3}), 1, 2, 2); });
    expect_error<Error>({"narrow: "}, [] { narrow(f({2, 3}), 1, 0, -1); });
    expect_error<ValueError>({"slice: ", "0"}, [] { slice(f({2, 3}), 1, 0, 2, 0); });
    expect_error<ValueError>({"slice: ", "-1"}, [] { slice(f({2, 3}), 1, 0, 2, -1); });
}

TEST(SplitAndCatErrors, ShowShapes) {
    expect_error<ValueError>({"split: ", "0"}, [] { split(f({4}), 0); });
    expect_error<ShapeError>({"split: ", "[1, 2]", "4"}, [] { split(f({4}), Dims{1, 2}); });
    expect_error<ValueError>({"chunk: ", "0"}, [] { chunk(f({4}), 0); });
    expect_error<ShapeError>({"cat: ", "[2, 3]", "[3, 4]"}, [] { cat({f({2, 3}), f({3, 4})}, 0); });
    expect_error<ShapeError>({"cat: ", "[2, 3]", "[2]"}, [] { cat({f({2, 3}), f({2})}); });
    expect_error<Error>({"cat: "}, [] { cat({}); });
    expect_error<ShapeError>({"stack: ", "[2, 3]", "[2]"}, [] { stack({f({2, 3}), f({2})}); });
    expect_error<Error>({"stack: "}, [] { stack({}); });
}

TEST(ArithmeticErrors, ShowBothShapes) {
    expect_error<ShapeError>({"add: ", "[2, 3]", "[4]"}, [] { add(f({2, 3}), f({4})); });
    expect_error<ShapeError>({"sub: ", "[2, 3]", "[2]"}, [] { sub(f({2, 3}), f({2})); });
    expect_error<ShapeError>({"mul: ", "[2, 3]", "[0, 3]"}, [] { mul(f({2, 3}), f({0, 3})); });
    expect_error<ShapeError>({"div: ", "[2]", "[3]"}, [] { div(f({2}), f({3})); });
    expect_error<ShapeError>({"pow: ", "[2]", "[3]"}, [] { pow(f({2}), f({3})); });
    expect_error<ShapeError>({"maximum: ", "[2]", "[3]"}, [] { maximum(f({2}), f({3})); });
    expect_error<ShapeError>({"lt: ", "[2]", "[3]"}, [] { lt(f({2}), f({3})); });
    expect_error<ShapeError>({"where: ", "[2]", "[3]"}, [] { where(b({2}), f({3}), f({3})); });
    expect_error<ShapeError>({"masked_fill: ", "[2]", "[3]"},
                             [] { masked_fill(f({2}), b({3}), 0); });
    expect_error<ShapeError>({"masked_fill: ", "[1]", "[3]"},
                             [] { masked_fill(f({1}), b({3}), 0); });
}

TEST(ArithmeticErrors, ShowDevicesAndUndefinedOperands) {
    const Tensor meta = ones({2}, {f32, Device::meta()});
    expect_error<DeviceError>({"add: ", "cpu", "meta"}, [&] { add(f({2}), meta); });
    expect_error<DeviceError>({"matmul: ", "meta", "cpu"}, [&] { matmul(meta, f({2})); });
    expect_error<UsageError>({"add: "}, [] { add(f({2}), Tensor()); });
    expect_error<UsageError>({"exp: "}, [] { exp(Tensor()); });
    expect_error<UsageError>({"sum: "}, [] { sum(Tensor()); });
    expect_error<UsageError>({"matmul: "}, [] { matmul(Tensor(), f({2})); });
    expect_error<UsageError>({"reshape: "}, [] { reshape(Tensor(), {2}); });
}

TEST(DTypeErrors, ShowDType) {
    expect_error<DTypeError>({"where: ", "float32"}, [] { where(f({2}), f({2}), f({2})); });
    expect_error<DTypeError>({"masked_fill: ", "int64"}, [] { masked_fill(f({2}), n({2}), 0); });
    expect_error<DTypeError>({"mean: ", "int64"}, [] { mean(n({2})); });
    expect_error<DTypeError>({"var: ", "int64"}, [] { var(n({2})); });
    expect_error<DTypeError>({"softmax: ", "int64"}, [] { softmax(n({2})); });
    expect_error<DTypeError>({"log_softmax: ", "int64"}, [] { log_softmax(n({2})); });
    expect_error<DTypeError>({"layer_norm: ", "int64"}, [] { layer_norm(n({2})); });
    expect_error<DTypeError>({"matmul: ", "float32", "float64"}, [] {
        matmul(f({2, 2}), ones({2, 2}, {f64}));
    });
    expect_error<DTypeError>({"linear: ", "float32", "bfloat16"}, [] {
        linear(f({2, 2}), ones({2, 2}, {bf16}));
    });
    expect_error<DTypeError>({"gather: ", "float32"}, [] { gather(f({2}), 0, f({1})); });
    expect_error<DTypeError>({"index_select: ", "float32"},
                             [] { index_select(f({2}), 0, f({1})); });
    expect_error<DTypeError>({"scatter_add: ", "float32", "float64"},
                             [] { scatter_add(f({2}), 0, n({1}), ones({1}, {f64})); });
    expect_error<DTypeError>({"embedding: ", "float32"}, [] { embedding(f({2}), f({3, 4})); });
    expect_error<DTypeError>({"one_hot: ", "float32"}, [] { one_hot(f({2}), 3); });
    expect_error<DTypeError>({"cross_entropy: ", "float32"}, [] {
        cross_entropy(f({2, 3}), f({2}));
    });
    expect_error<DTypeError>({"cross_entropy: ", "int64"}, [] {
        cross_entropy(n({2, 3}), n({2}));
    });
}

TEST(ReductionErrors, ShowDimension) {
    expect_error<IndexError>({"sum: ", "2"}, [] { sum(f({2, 3}), {2}); });
    expect_error<IndexError>({"mean: ", "-3"}, [] { mean(f({2, 3}), {-3}); });
    expect_error<IndexError>({"max: ", "1"}, [] { max(f({2}), {1}); });
    expect_error<IndexError>({"argmax: ", "1"}, [] { argmax(f({2}), 1); });
    expect_error<IndexError>({"softmax: ", "2"}, [] { softmax(f({2, 3}), 2); });
    expect_error<IndexError>({"sort: ", "2"}, [] { sort(f({2, 3}), 2); });
    expect_error<IndexError>({"sort: ", "-2"}, [] { argsort(f({2}), -2); });
    expect_error<IndexError>({"cumsum: ", "1"}, [] { cumsum(f({2}), 1); });
    expect_error<Error>({"sum: "}, [] { sum(f({2, 3}), {0, -2}); });
}

TEST(ReductionErrors, ShowEmptyShape) {
    expect_error<Error>({"max: ", "[0, 3]"}, [] { max(f({0, 3})); });
    expect_error<Error>({"min: ", "[0, 3]"}, [] { min(f({0, 3}), {0}); });
    expect_error<Error>({"argmax: ", "[0, 3]"}, [] { argmax(f({0, 3}), 0); });
    expect_error<Error>({"argmin: ", "[2, 0]"}, [] { argmin(f({2, 0}), 1); });
}

TEST(IndexErrors, ShowIndex) {
    expect_error<IndexError>({"gather: ", "7"}, [] { gather(f({2}), 0, index({0, 7})); });
    expect_error<IndexError>({"gather: ", "-1"}, [] { gather(f({2}), 0, index({-1})); });
    expect_error<IndexError>({"index_select: ", "2"}, [] { index_select(f({2}), 0, index({2})); });
    expect_error<IndexError>({"scatter_add: ", "5"},
                             [] { scatter_add(f({2}), 0, index({5}), f({1})); });
    expect_error<IndexError>({"embedding: ", "3"}, [] { embedding(index({3}), f({3, 4})); });
    expect_error<IndexError>({"embedding: ", "-1"}, [] { embedding(index({-1}), f({3, 4})); });
    expect_error<IndexError>({"one_hot: ", "3"}, [] { one_hot(index({3}), 3); });
    expect_error<IndexError>({"cross_entropy: ", "3"}, [] {
        cross_entropy(f({2, 3}), index({0, 3}));
    });
    expect_error<IndexError>({"linear_cross_entropy: ", "-1"}, [] {
        linear_cross_entropy(f({2, 3}), f({4, 3}), index({0, -1}));
    });
}

TEST(IndexErrors, ShowShapes) {
    expect_error<ShapeError>({"gather: ", "[2, 3]", "[2]"}, [] { gather(f({2, 3}), 1, n({2})); });
    expect_error<ShapeError>({"gather: ", "[2, 3]", "[3, 1]"}, [] {
        gather(f({2, 3}), 1, zeros({3, 1}, {i64}));
    });
    expect_error<ShapeError>({"index_select: ", "[2, 1]"}, [] {
        index_select(f({2, 3}), 1, n({2, 1}));
    });
    expect_error<ShapeError>({"scatter_add: ", "[2, 3]", "[2, 2]"}, [] {
        scatter_add(f({2, 3}), 1, zeros({2, 3}, {i64}), f({2, 2}));
    });
    expect_error<ShapeError>({"embedding: ", "[3]"}, [] { embedding(n({2}), f({3})); });
    expect_error<ShapeError>({"tril: ", "[3]"}, [] { tril(f({3})); });
    expect_error<ShapeError>({"triu: ", "[]"}, [] { triu(f({})); });
    expect_error<Error>({"topk: ", "[3]", "4"}, [] { topk(f({3}), 4); });
    expect_error<Error>({"topk: ", "-1"}, [] { topk(f({3}), -1); });
}

TEST(ProductErrors, ShowBothShapes) {
    expect_error<ShapeError>({"matmul: inner dimensions differ: [2, 3] @ [4, 5]"}, [] {
        matmul(f({2, 3}), f({4, 5}));
    });
    expect_error<ShapeError>({"matmul: inner dimensions differ: [3] @ [4]"},
                             [] { matmul(f({3}), f({4})); });
    expect_error<ShapeError>({"matmul: ", "[2, 3, 4]", "[3, 4, 5]"}, [] {
        matmul(f({2, 3, 4}), f({3, 4, 5}));
    });
    expect_error<ShapeError>({"matmul: ", "[]", "[3]"}, [] { matmul(f({}), f({3})); });
    expect_error<ShapeError>({"linear: ", "[3, 4]", "[5, 6]"}, [] {
        linear(f({3, 4}), f({5, 6}));
    });
    expect_error<ShapeError>({"linear: ", "[5, 4]", "[4]"}, [] {
        linear(f({3, 4}), f({5, 4}), f({4}));
    });
    expect_error<ShapeError>({"linear: ", "[4]"}, [] { linear(f({3, 4}), f({4})); });
    const auto layers = [](const Shape& weight1, const Shape& weight2, const Shape& bias2) {
        feed_forward(f({3, 4}), f(weight1), {}, f(weight2), f(bias2), Activation::relu);
    };
    expect_error<ShapeError>({"feed_forward: ", "[3, 4]", "[5, 6]"}, [&] {
        layers({5, 6}, {2, 5}, {2});
    });
    expect_error<ShapeError>({"feed_forward: ", "[out, 5]", "[5, 4]", "[2, 6]"}, [&] {
        layers({5, 4}, {2, 6}, {2});
    });
    expect_error<ShapeError>({"feed_forward: ", "[2, 5]", "[3]"}, [&] {
        layers({5, 4}, {2, 5}, {3});
    });
}

TEST(NormErrors, ShowBothShapes) {
    expect_error<ShapeError>({"layer_norm: ", "[2, 3]", "[4]"}, [] {
        layer_norm(f({2, 3}), f({4}));
    });
    expect_error<ShapeError>({"layer_norm: ", "[2, 3]", "[2]"}, [] {
        layer_norm(f({2, 3}), f({3}), f({2}));
    });
    expect_error<ShapeError>({"layer_norm: ", "[]"}, [] { layer_norm(f({})); });
    expect_error<ShapeError>({"rms_norm: ", "[2, 3]", "[1]"}, [] { rms_norm(f({2, 3}), f({1})); });
}

TEST(AttentionErrors, ShowShapes) {
    const auto attend = [](const Shape& q, const Shape& k, const Shape& v,
                           const AttentionOptions& options = {}) {
        scaled_dot_product_attention(f(q), f(k), f(v), options);
    };
    const char* op = "scaled_dot_product_attention: ";
    const Shape fits = {2, 4, 3, 8};
    expect_error<ShapeError>({op, "[4, 3, 8]"}, [&] { attend({4, 3, 8}, {4, 3, 8}, {4, 3, 8}); });
    expect_error<ShapeError>({op, "[2, 4, 3, 8]", "[2, 3, 3, 8]"}, [&] {
        attend(fits, {2, 3, 3, 8}, {2, 3, 3, 8});
    });
    expect_error<ShapeError>({op, "[2, 4, 3, 8]", "[1, 4, 3, 8]"}, [&] {
        attend(fits, {1, 4, 3, 8}, {1, 4, 3, 8});
    });
    expect_error<ShapeError>({op, "[2, 4, 3, 8]", "[2, 4, 3, 6]"}, [&] {
        attend(fits, {2, 4, 3, 6}, {2, 4, 3, 6});
    });
    expect_error<ShapeError>({op, "[2, 4, 5, 8]", "[2, 4, 3, 8]"}, [&] {
        attend(fits, {2, 4, 5, 8}, fits);
    });
    expect_error<ShapeError>({op, "[5, 3]"}, [&] {
        attend(fits, fits, fits, {.mask = b({5, 3})});
    });
    expect_error<DTypeError>({op, "int64"}, [&] { attend(fits, fits, fits, {.mask = n({3, 3})}); });
    expect_error<ValueError>({op, "1.5"}, [&] { attend(fits, fits, fits, {.dropout_p = 1.5}); });
    expect_error<ShapeError>({"rotary_embedding: ", "[2, 3]"}, [] { rotary_embedding(f({2, 3})); });
    expect_error<ShapeError>({"rotary_embedding: ", "[4]"}, [] { rotary_embedding(f({4})); });
}

TEST(LossErrors, ShowShapesAndOptions) {
    expect_error<ShapeError>({"cross_entropy: ", "[4, 5]", "[3]"}, [] {
        cross_entropy(f({4, 5}), n({3}));
    });
    expect_error<ShapeError>({"cross_entropy: ", "[4]"}, [] { cross_entropy(f({4}), n({4})); });
    expect_error<ValueError>({"cross_entropy: ", "1.5"}, [] {
        cross_entropy(f({2, 3}), n({2}), {.label_smoothing = 1.5});
    });
    expect_error<ShapeError>({"linear_cross_entropy: ", "[2, 3]", "[4, 5]"}, [] {
        linear_cross_entropy(f({2, 3}), f({4, 5}), n({2}));
    });
    expect_error<ValueError>({"linear_cross_entropy: "}, [] {
        linear_cross_entropy(f({2, 3}), f({4, 3}), n({2}), {.reduction = Reduction::none});
    });
    expect_error<ShapeError>({"mse_loss: ", "[2, 3]", "[4]"}, [] { mse_loss(f({2, 3}), f({4})); });
}

}  // namespace

}  // namespace axle::tests
