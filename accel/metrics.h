// Metrics of an evaluation over the batches of all processes.
//
//     accel::Mean loss(accelerator);
//     accel::Accuracy accuracy(accelerator);
//     for (auto& batch : loader) {  // a prepared loader
//         const Tensor logits = model(batch["image"]);
//         loss.update(cross_entropy(logits, batch["label"], {.reduction = Reduction::none}));
//         accuracy.update(logits, batch["label"]);
//     }
//     accelerator.print(loss.compute(), ' ', accuracy.compute());
//
// Prepared loaders may repeat samples to fill the last step. A metric ignores the repeated samples
// (for exceptions, see ValidRows and Mean::update()), so its value does not depend on the number of
// processes. Counts are exact. Sums are computed in f64; for different numbers of processes they
// differ only by rounding.
//
// update() does not read device memory; the sums are kept on the device. compute() and state_dict()
// add up the sums of all processes and read the result. All processes must call these two functions
// together, and get the same result. If one process fails, all processes throw, for example if the
// number of classes differs or a kernel has reported an index out of range.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "core/tensor.h"
#include "core/tree/tree.h"

namespace axle::accel {

// The rows that a metric counts. Rows are the first dimension of the tensors of an update. By
// default, the first Accelerator::valid_rows() rows are counted. All rows are counted if their
// number differs from the number of rows in the batch, for example for logits [rows * tokens,
// classes]. No rows are counted on a process whose data another process counts. update() of metrics
// throws the errors of left_out().
class ValidRows {
  public:
    ValidRows() = default;            // the default selection
    ValidRows(std::int64_t leading);  // NOLINT: counts the first `leading` rows
    ValidRows(Tensor mask);           // NOLINT: bool [rows], true for counted rows

    bool is_given() const { return kind_ != Kind::automatic; }
    // Returns a bool tensor [rows], true for rows that are not counted, or an undefined tensor if
    // all rows are counted. Throws ShapeError or ValueError if the selection does not match the
    // number of rows. Throws DTypeError for a mask that is not bool, and UsageError for an
    // undefined mask.
    Tensor left_out(const std::string& op, const Accelerator& accelerator, std::int64_t rows,
                    Device device) const;

  private:
    enum class Kind : std::uint8_t { automatic, leading, mask };
    Kind kind_ = Kind::automatic;
    std::int64_t leading_ = 0;
    Tensor mask_;
};

// The base class of metrics, which are sums over all updates. The Accelerator must outlive the
// metric, and the tensors of an update must be on its device. A metric may be registered with
// Accelerator::register_for_checkpointing(), and its state may be loaded on any number of
// processes. Used by one thread.
class Metric : public Checkpointable {
  public:
    Metric(const Metric&) = delete;
    Metric& operator=(const Metric&) = delete;

    // Sets the sums to 0.
    void reset();
    // Returns the sums over all processes, on the CPU.
    Tree state_dict() const override;
    // Loads the result of state_dict(), which must be the same on all processes. Throws ValueError
    // for the state of another metric, and IndexError if an entry is missing.
    void load_state_dict(const Tree& state) override;

  protected:
    Metric(Accelerator& accelerator, std::string name, const std::string& options,
           const Shape& shape, DType dtype);

    const std::string& name() const { return name_; }
    Device device() const { return sums_.device(); }
    void add(const Tensor& sums);
    // Returns the sums over all processes, on the CPU.
    Tensor total() const;
    // Returns total()[0] / total()[1]. Throws UsageError if total()[1] is 0.
    double ratio() const;
    // Throws UsageError. Called if nothing was counted.
    [[noreturn]] void fail_empty() const;
    // Returns a bool tensor [rows], true for rows that are not counted, or an undefined tensor if
    // all rows are counted.
    Tensor left_out(const ValidRows& valid, std::int64_t rows) const;
    // Returns the labels in i64, with ignore_index in rows that are not counted. Throws DTypeError
    // for labels that are not integers, and ShapeError for a 0-d tensor.
    Tensor valid_labels(const Tensor& labels, const ValidRows& valid,
                        std::int64_t ignore_index) const;

  private:
    Accelerator& accelerator_;
    std::string name_, described_;
    Tensor sums_;
};

// The weighted mean of values. Values with weight 0 are ignored, even if they are NaN. compute()
// throws UsageError if the sum of the weights is 0.
class Mean : public Metric {
  public:
    explicit Mean(Accelerator& accelerator);

    // Adds values [rows, ...] with weights of the same shape or [rows]; the default weight is 1.
    // Throws ShapeError for weights of another shape.
    void update(const Tensor& values, const Tensor& weights = {}, const ValidRows& valid = {});
    // Adds one value that is a mean, such as the mean loss of a batch, with the number of rows or
    // tokens as its weight. Rows that repeat earlier samples are counted, unless the caller has
    // removed them. Throws ShapeError unless `value` has one element, and ValueError unless
    // `weight` is finite and not negative.
    void update(const Tensor& value, double weight);
    void update(double value, double weight = 1);
    double compute() const { return ratio(); }
};

// The perplexity: exp of the mean negative log likelihood of a token, in nats. For a model that
// computes its loss without logits, use exp of a Mean of the losses instead. compute() throws
// UsageError if no label was counted.
class Perplexity : public Metric {
  public:
    explicit Perplexity(Accelerator& accelerator, std::int64_t ignore_index = -100);

    // Adds logits [rows, ..., classes] for labels [rows, ...]. Throws ShapeError or DTypeError for
    // other tensors, and IndexError for a label out of range (on a GPU, the next call that
    // synchronizes throws it).
    void update(const Tensor& logits, const Tensor& labels, const ValidRows& valid = {});
    double compute() const;

  private:
    std::int64_t ignore_index_;
};

struct AccuracyOptions {
    // A prediction is correct if the label is among the top_k classes with the highest scores.
    // Among equal scores, the lower class is ranked first.
    std::int64_t top_k = 1;
    std::int64_t ignore_index = -100;
};

// The fraction of correct predictions, from 0 to 1. compute() throws UsageError if no label was
// counted. The constructor throws ValueError if top_k is less than 1.
class Accuracy : public Metric {
  public:
    explicit Accuracy(Accelerator& accelerator, AccuracyOptions options = {});

    // Adds predictions for labels [rows, ...]. Predictions are scores (logits or probabilities)
    // [rows, ..., classes] or integer classes [rows, ...]. Throws ShapeError or DTypeError if
    // predictions and labels do not match. Throws ValueError if the number of scores is below
    // top_k, or if top_k is above 1 for integer classes. Throws IndexError for a label without a
    // score (on a GPU, the next call that synchronizes throws it).
    void update(const Tensor& predictions, const Tensor& labels, const ValidRows& valid = {});
    double compute() const { return ratio(); }

  private:
    AccuracyOptions options_;
};

// Counts of predictions by label and predicted class. The base class of ConfusionMatrix and F1.
class ClassCounts : public Metric {
  public:
    // Adds predictions for labels, with the shapes that Accuracy::update() accepts. Throws
    // ShapeError or DTypeError if predictions, labels and num_classes do not match. Throws
    // IndexError for a label or class out of range (on a GPU, the next call that synchronizes
    // throws it).
    void update(const Tensor& predictions, const Tensor& labels, const ValidRows& valid = {});

  protected:
    ClassCounts(Accelerator& accelerator, std::string name, std::int64_t num_classes,
                std::int64_t ignore_index);
    std::int64_t num_classes() const { return num_classes_; }
    // Returns the counts, i64 [label, prediction], on the CPU.
    Tensor counts() const { return total().view({num_classes_, num_classes_}); }

  private:
    std::int64_t num_classes_, ignore_index_;
};

enum class Normalize : std::uint8_t { none, by_label, by_prediction, by_all };

// The confusion matrix. The constructor throws ValueError if num_classes is less than 1.
class ConfusionMatrix : public ClassCounts {
  public:
    ConfusionMatrix(Accelerator& accelerator, std::int64_t num_classes,
                    std::int64_t ignore_index = -100)
        : ClassCounts(accelerator, "ConfusionMatrix", num_classes, ignore_index) {}

    // Returns a matrix [label, prediction] on the CPU. By default its elements are counts in i64. A
    // normalized matrix is f64: the elements of each row, of each column, or of the whole matrix
    // add up to 1. If a sum of counts is 0, its elements are 0.
    Tensor compute(Normalize how = Normalize::none) const;
};

// Selects how the scores of classes are combined. binary: the score of class `positive` of two
// classes. micro: the score of the counts summed over all classes. macro: the mean over classes.
// weighted: the mean weighted by the number of labels of each class.
enum class Average : std::uint8_t { binary, micro, macro, weighted };

struct F1Options {
    Average average = Average::macro;
    std::int64_t positive = 1;
    std::int64_t ignore_index = -100;
    // The value of a score whose denominator is 0, as in scikit-learn: 0, 1, or NaN. A NaN is
    // ignored in means. zero_division also applies to classes that occur neither in the labels nor
    // in the predictions.
    double zero_division = 0;
};

struct ClassScores {
    double precision, recall, f1;
};

// Precision, recall and F1 score, as scikit-learn's precision_recall_fscore_support computes them
// with labels=range(num_classes). compute(), scores() and per_class() throw UsageError if no label
// was counted. The constructor throws ValueError for options out of range.
class F1 : public ClassCounts {
  public:
    F1(Accelerator& accelerator, std::int64_t num_classes, F1Options options = {});

    double compute() const { return scores().f1; }
    // scores() returns the scores of all classes, combined as F1Options::average specifies.
    // per_class() returns the scores of each class, indexed by class.
    ClassScores scores() const;
    std::vector<ClassScores> per_class() const;

  private:
    Tensor some_counts() const;

    F1Options options_;
};

}  // namespace axle::accel
