#include "accel/metrics.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "dist/group/process_group.h"
#include "dist/group/shared_error.h"

namespace axle::accel {
namespace {

// Expands a mask [rows] to the shape of x, [rows, ...].
Tensor broadcast_mask(const Tensor& mask, const Tensor& x) {
    Shape shape = x.shape();
    for (int d = 1; d < x.dim(); ++d) shape[d] = 1;
    return expand(reshape(mask, shape), x.shape());
}

std::int64_t rows_of(const std::string& op, const char* what, const Tensor& x) {
    if (x.dim() == 0)
        throw ShapeError(
            str(op, ": ", what, " must have at least one dimension (rows): shape ", x.shape()));
    return x.size(0);
}

// Returns whether predictions are scores with one value per class. Otherwise they are indices of
// classes. Throws ShapeError or DTypeError if they are neither.
bool are_scores(const std::string& op, const Tensor& predictions, const Tensor& labels) {
    const int dims = labels.dim();
    bool fits = predictions.dim() == dims || predictions.dim() == dims + 1;
    for (int d = 0; fits && d < dims; ++d) fits = predictions.size(d) == labels.size(d);
    if (!fits)
        throw ShapeError(str(op, ": needs classes of the labels' shape, or scores with one more ",
                             "dimension: predictions ", predictions.shape(), ", labels ",
                             labels.shape()));
    const bool scores = predictions.dim() > dims;
    if (!(scores ? is_floating(predictions.dtype()) : is_integral(predictions.dtype())))
        throw DTypeError(str(op, ": ",
                             scores ? "scores must be floating-point" : "classes must be integers",
                             ": predictions ", predictions.dtype(), " ", predictions.shape(),
                             ", labels ", labels.shape()));
    return scores;
}

// Checks that the classes are in [0, count) and returns them. Throws IndexError on a CPU; on a GPU,
// the next synchronization throws the error.
Tensor checked_classes(const std::string& op, const char* what, const Tensor& classes,
                       std::int64_t count) {
    if (classes.device().is_cpu() && classes.numel() > 0)
        for (const std::int64_t c : {classes.min().item_int(), classes.max().item_int()})
            if (c < 0 || c >= count)
                throw IndexError(str(op, ": ", what, " must be in [0, ", count, "): ", c));
    return index_select(arange(count, {i64, classes.device()}), 0, classes);
}

Tensor flat_classes(const Tensor& predictions, bool scores) {
    return flatten(scores ? argmax(predictions, -1) : to(predictions, i64));
}

}  // namespace

// --- rows

ValidRows::ValidRows(std::int64_t leading) : kind_(Kind::leading), leading_(leading) {}
ValidRows::ValidRows(Tensor mask) : kind_(Kind::mask), mask_(std::move(mask)) {}

Tensor ValidRows::left_out(const std::string& op, const Accelerator& accelerator, std::int64_t rows,
                           Device device) const {
    if (kind_ == Kind::mask) {
        if (!mask_.defined()) throw UsageError(str(op, ": the mask of valid rows is undefined"));
        if (mask_.dtype() != boolean)
            throw DTypeError(str(op, ": the mask of valid rows must be bool: ", mask_.dtype()));
        if (mask_.shape() != Shape{rows})
            throw ShapeError(
                str(op, ": the mask of valid rows must be [", rows, "]: mask ", mask_.shape()));
        return eq(mask_, false);
    }
    const std::int64_t count = kind_ == Kind::leading ? leading_ : accelerator.valid_rows(rows);
    if (count < 0 || count > rows)
        throw ValueError(str(op, ": the number of valid rows must be in [0, ", rows, "]: ", count));
    return count == rows ? Tensor() : ge(arange(rows, {i64, device}), count);
}

// --- Metric

Metric::Metric(Accelerator& accelerator, std::string name, const std::string& options,
               const Shape& shape, DType dtype)
    : accelerator_(accelerator),
      name_(std::move(name)),
      described_(str(name_, "(", options, ")")),
      sums_(zeros(shape, {dtype, accelerator.device()})) {}

void Metric::reset() { sums_.zero_(); }
void Metric::add(const Tensor& sums) { sums_.add_(sums); }

Tensor Metric::left_out(const ValidRows& valid, std::int64_t rows) const {
    return valid.left_out(name_, accelerator_, rows, device());
}

Tensor Metric::valid_labels(const Tensor& labels, const ValidRows& valid,
                            std::int64_t ignore_index) const {
    if (!is_integral(labels.dtype()))
        throw DTypeError(str(name_, ": labels must be integers: ", labels.dtype()));
    const Tensor out = left_out(valid, rows_of(name_, "labels", labels));
    const Tensor whole = to(labels, i64);
    return out.defined() ? masked_fill(whole, broadcast_mask(out, whole), ignore_index) : whole;
}

Tensor Metric::total() const {
    Tensor own;
    dist::ProcessGroup& group = *accelerator_.state().process_group();
    const std::vector<Tree> metrics = dist::gather_or_throw(group, name_, [&]() -> Tree {
        own = sums_.device().is_cpu() ? sums_.clone() : sums_.to(Device::cpu());
        return described_;
    });
    for (std::size_t rank = 0; rank < metrics.size(); ++rank)
        if (metrics[rank].string() != metrics[0].string())
            throw ValueError(str(name_, ": processes have different metrics: ", metrics[0].string(),
                                 " on process 0, ", metrics[rank].string(), " on process ", rank));
    group.all_reduce(own);
    return own;
}

double Metric::ratio() const {
    const std::vector<double> sums = total().to_vector();
    if (sums[1] == 0) fail_empty();
    return sums[0] / sums[1];
}

void Metric::fail_empty() const {
    throw UsageError(
        str(name_,
            ": nothing was counted on any process since the metric was created, reset "
            "or loaded; call update() with rows that are valid, have a weight above 0, and a "
            "label other than ignore_index"));
}

Tree Metric::state_dict() const { return Tree{{"metric", described_}, {"sums", total()}}; }

// Process 0 loads the sums of all processes; the other processes start with zeros.
void Metric::load_state_dict(const Tree& state) {
    const std::string& metric = state["metric"].string();
    const Tensor& sums = state["sums"];
    if (metric != described_)
        throw ValueError(str(name_, ": the state was saved by another metric, expected ",
                             described_, ": ", metric));
    if (sums.shape() != sums_.shape() || sums.dtype() != sums_.dtype())
        throw ValueError(str(name_, ": the state's sums must be ", sums_.dtype(), " ",
                             sums_.shape(), ": ", sums.dtype(), " ", sums.shape()));
    reset();
    if (accelerator_.is_main_process()) sums_.copy_(sums.to(sums_.device()));
}

// --- means

Mean::Mean(Accelerator& accelerator) : Metric(accelerator, "Mean", "", {2}, f64) {}

void Mean::update(const Tensor& values, const Tensor& weights, const ValidRows& valid) {
    const NoGrad no_grad;
    const Tensor x = to(values, f64);
    Tensor w = weights.defined() ? to(weights, f64) : ones_like(x);
    if (w.shape() != x.shape()) {
        if (x.dim() == 0 || w.shape() != Shape{x.size(0)})
            throw ShapeError(
                str(name(), ": weights must have the shape of the values, or one element per row: ",
                    "weights ", weights.shape(), ", values ", values.shape()));
        w = broadcast_mask(w, x);
    }
    if (x.dim() > 0 || valid.is_given())
        if (const Tensor out = left_out(valid, rows_of(name(), "values", x)); out.defined())
            w = masked_fill(w, broadcast_mask(out, x), 0);
    add(stack({sum(masked_fill(x * w, eq(w, 0), 0)), sum(w)}));
}

void Mean::update(const Tensor& value, double weight) {
    if (value.numel() != 1)
        throw ShapeError(str(name(),
                             ": with a number as weight, value must have one element: value is ",
                             value.shape(), "; pass a tensor of weights for several values"));
    if (!(weight >= 0 && std::isfinite(weight)))
        throw ValueError(str(name(), ": the weight must be finite and not negative: ", weight));
    update(reshape(value, {}), full({}, weight, {f64, device()}));
}

void Mean::update(double value, double weight) { update(full({}, value, {f64, device()}), weight); }

// --- likelihood

Perplexity::Perplexity(Accelerator& accelerator, std::int64_t ignore_index)
    : Metric(accelerator, "Perplexity", str("ignore_index=", ignore_index), {2}, f64),
      ignore_index_(ignore_index) {}

void Perplexity::update(const Tensor& logits, const Tensor& labels, const ValidRows& valid) {
    const NoGrad no_grad;
    if (!are_scores(name(), logits, labels))
        throw ShapeError(str(name(), ": needs logits [..., classes]: logits ", logits.shape(),
                             ", labels ", labels.shape()));
    const Tensor wanted = flatten(valid_labels(labels, valid, ignore_index_));
    // Losses are computed in f32 or f64, because f16 and bf16 would round them.
    const Tensor scores = to(flatten(logits, 0, -2), logits.dtype() == f64 ? f64 : f32);
    const Tensor losses = cross_entropy(
        scores, wanted, {.ignore_index = ignore_index_, .reduction = Reduction::none});
    add(stack({sum(to(losses, f64)), to(sum(ne(wanted, ignore_index_)), f64)}));
}

double Perplexity::compute() const { return std::exp(ratio()); }

// --- classes

Accuracy::Accuracy(Accelerator& accelerator, AccuracyOptions options)
    : Metric(accelerator, "Accuracy",
             str("top_k=", options.top_k, ", ignore_index=", options.ignore_index), {2}, i64),
      options_(options) {
    if (options.top_k < 1)
        throw ValueError(str(name(), ": top_k must be positive: ", options.top_k));
}

void Accuracy::update(const Tensor& predictions, const Tensor& labels, const ValidRows& valid) {
    const NoGrad no_grad;
    const bool scores = are_scores(name(), predictions, labels);
    const std::int64_t k = options_.top_k;
    if (k > (scores ? predictions.size(-1) : 1))
        throw ValueError(
            str(name(),
                ": top_k must be at most the number of scores in a row, or 1 for classes: top_k ",
                k, ", predictions are ", scores ? "scores" : "classes", " ", predictions.shape()));
    const Tensor wanted = flatten(valid_labels(labels, valid, options_.ignore_index));
    const Tensor ignored = eq(wanted, options_.ignore_index);
    if (scores)
        checked_classes(name(), "a label", masked_fill(wanted, ignored, 0), predictions.size(-1));
    const Tensor right =
        k == 1 ? eq(flat_classes(predictions, scores), wanted)
               : eq(topk(flatten(predictions, 0, -2), k).second, wanted.unsqueeze(-1)).sum({-1});
    add(stack({sum(masked_fill(to(right, i64), ignored, 0)), sum(eq(ignored, false))}));
}

ClassCounts::ClassCounts(Accelerator& accelerator, std::string name, std::int64_t num_classes,
                         std::int64_t ignore_index)
    : Metric(accelerator, std::move(name),
             str("num_classes=", num_classes, ", ignore_index=", ignore_index),
             {num_classes < 1 ? 0 : num_classes * num_classes}, i64),
      num_classes_(num_classes),
      ignore_index_(ignore_index) {
    if (num_classes < 1)
        throw ValueError(str(this->name(), ": num_classes must be positive: ", num_classes));
}

void ClassCounts::update(const Tensor& predictions, const Tensor& labels, const ValidRows& valid) {
    const NoGrad no_grad;
    const bool scores = are_scores(name(), predictions, labels);
    if (scores && predictions.size(-1) != num_classes_)
        throw ShapeError(str(name(), ": scores must have ", num_classes_,
                             " classes in the last dimension: scores ", predictions.shape()));
    const Tensor wanted = flatten(valid_labels(labels, valid, ignore_index_));
    const Tensor ignored = eq(wanted, ignore_index_);
    const auto classes = [&](const char* what, const Tensor& of) {
        return checked_classes(name(), what, masked_fill(of, ignored, 0), num_classes_);
    };
    const Tensor cells = classes("a label", wanted) * num_classes_ +
                         classes("a prediction", flat_classes(predictions, scores));
    const Tensor none = zeros({num_classes_ * num_classes_}, {i64, wanted.device()});
    add(scatter_add(none, 0, cells, to(eq(ignored, false), i64)));
}

Tensor ConfusionMatrix::compute(Normalize how) const {
    const Tensor matrix = counts();
    if (how == Normalize::none) return matrix;
    Dims along;  // the dimensions of the sum; empty: all
    if (how == Normalize::by_label) along = {1};
    if (how == Normalize::by_prediction) along = {0};
    const Tensor sums = sum(matrix, along, true);
    return to(matrix, f64) / to(maximum(sums, ones_like(sums)), f64);
}

// --- scores of classes

namespace {

ClassScores scores_of(double right, double predicted, double labelled, double zero_division) {
    const auto ratio = [&](double a, double b) { return b == 0 ? zero_division : a / b; };
    return {ratio(right, predicted), ratio(right, labelled),
            ratio(2 * right, predicted + labelled)};
}

// Returns the weighted mean of the values that are not NaN, or NaN if all values are NaN. If all
// weights are 0, returns the mean without weights.
double mean_of(const std::vector<ClassScores>& classes, double ClassScores::*score,
               const std::vector<double>& weights) {
    double sum = 0, weight = 0, plain_sum = 0, count = 0;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        const double value = classes[i].*score;
        if (std::isnan(value)) continue;
        sum += value * weights[i], weight += weights[i];
        plain_sum += value, ++count;
    }
    return weight > 0 ? sum / weight : plain_sum / count;
}

// For each class, the numbers of correct predictions, of predictions, and of labels.
struct Tally {
    explicit Tally(const Tensor& counts)
        : right(sum(counts * one_hot(arange(counts.size(0)), counts.size(0)), {1}).to_vector()),
          predicted(sum(counts, {0}).to_vector()),
          labelled(sum(counts, {1}).to_vector()) {}

    std::vector<ClassScores> per_class(double zero_division) const {
        std::vector<ClassScores> classes;
        for (std::size_t c = 0; c < right.size(); ++c)
            classes.push_back(scores_of(right[c], predicted[c], labelled[c], zero_division));
        return classes;
    }

    std::vector<double> right, predicted, labelled;
};

double sum_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

F1::F1(Accelerator& accelerator, std::int64_t num_classes, F1Options options)
    : ClassCounts(accelerator, "F1", num_classes, options.ignore_index), options_(options) {
    const auto [average, positive, ignored, zero_division] = options_;
    if (average == Average::binary && (num_classes != 2 || positive < 0 || positive > 1))
        throw ValueError(
            str(name(), ": average binary needs num_classes 2 and positive 0 or 1: num_classes ",
                num_classes, ", positive ", positive));
    if (zero_division != 0 && zero_division != 1 && !std::isnan(zero_division))
        throw ValueError(str(name(), ": zero_division must be 0, 1 or NaN: ", zero_division));
}

std::vector<ClassScores> F1::per_class() const {
    return Tally(some_counts()).per_class(options_.zero_division);
}

Tensor F1::some_counts() const {
    const Tensor all = counts();
    if (all.sum().item() == 0) fail_empty();
    return all;
}

ClassScores F1::scores() const {
    const Tally tally(some_counts());
    const double zero_division = options_.zero_division;
    if (options_.average == Average::micro)
        return scores_of(sum_of(tally.right), sum_of(tally.predicted), sum_of(tally.labelled),
                         zero_division);
    const std::vector<ClassScores> classes = tally.per_class(zero_division);
    if (options_.average == Average::binary)
        return classes[static_cast<std::size_t>(options_.positive)];
    const std::vector<double> weights = options_.average == Average::weighted
                                            ? tally.labelled
                                            : std::vector<double>(classes.size(), 1.0);
    const auto mean = [&](double ClassScores::*score) { return mean_of(classes, score, weights); };
    return {mean(&ClassScores::precision), mean(&ClassScores::recall), mean(&ClassScores::f1)};
}

}  // namespace axle::accel
