// Metrics of an evaluation, over the batches of all processes.
//
//     accel::Mean loss(accelerator);
//     accel::Accuracy accuracy(accelerator);
//     for (auto& batch : loader) {  // a prepared one
//         const Tensor logits = model(batch["image"]);
//         loss.update(cross_entropy(logits, batch["label"], {.reduction = Reduction::none}));
//         accuracy.update(logits, batch["label"]);
//     }
//     accelerator.print(loss.compute(), ' ', accuracy.compute());
//
// Prepared loaders may fill up the last batch with samples that were there already. A metric leaves
// them out, so that it says the same on any number of processes: counts exactly, sums, which are in
// f64, but for rounding.
//
// update() reads nothing from a device: sums stay there. compute() and state_dict() read and reduce
// them: all processes call them together, and get the same. Where one of them can't (another number
// of classes, an index out of range that its GPU has found) each of them throws.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "core/tensor.h"
#include "core/tree/tree.h"

namespace axle::accel {

// Which rows of an update count; a tensor's rows are its first dimension. All do where their number
// isn't the batch's, as in logits [rows * tokens, classes], unless it is said otherwise.
class ValidRows {
  public:
    ValidRows() = default;            // those of Accelerator::valid_rows
    ValidRows(std::int64_t leading);  // NOLINT: the first so many
    ValidRows(Tensor mask);           // NOLINT: bool [rows], true counts

    bool is_said() const { return kind_ != Kind::unsaid; }
    // bool [rows]: those that don't count; undefined if all do. ShapeError, DTypeError and
    // ValueError for what doesn't fit.
    Tensor left_out(const std::string& op, const Accelerator& accelerator, std::int64_t rows,
                    Device device) const;

  private:
    enum class Kind : std::uint8_t { unsaid, leading, mask };
    Kind kind_ = Kind::unsaid;
    std::int64_t leading_ = 0;
    Tensor mask_;
};

// What all metrics are: sums that grow with every update. Uses the Accelerator, whose device the
// tensors of an update are on, as long as it lives. Registered for checkpointing
// (Accelerator::register_for_checkpointing) a metric goes on where it was, on any number of
// processes.
class Metric : public Checkpointable {
  public:
    Metric(const Metric&) = delete;
    Metric& operator=(const Metric&) = delete;

    void reset();
    // The sums of all processes.
    Tree state_dict() const override;
    // Every process loads the same. ValueError for the state of another metric.
    void load_state_dict(const Tree& state) override;

  protected:
    Metric(Accelerator& accelerator, std::string name, const std::string& options,
           const Shape& shape, DType dtype);

    const std::string& name() const { return name_; }
    Device device() const { return sums_.device(); }
    void add(const Tensor& sums);
    // The sums of all processes, on the CPU.
    Tensor total() const;
    // total()[0] / total()[1]
    double ratio() const;
    // As true for what doesn't count, [rows] by `valid`.
    Tensor left_out(const ValidRows& valid, std::int64_t rows) const;
    // Labels in i64, with ignore_index where they don't count.
    Tensor counting(const Tensor& labels, const ValidRows& valid, std::int64_t ignore_index) const;

  private:
    Accelerator& accelerator_;
    std::string name_, described_;
    Tensor sums_;
};

// The weighted mean of values. NaN before the first that counts; one of weight 0 doesn't, whatever
// it is.
class Mean : public Metric {
  public:
    explicit Mean(Accelerator& accelerator);

    // Values [rows, ...], with weights of the same shape or [rows], or 1 each.
    void update(const Tensor& values, const Tensor& weights = {}, const ValidRows& valid = {});
    // One value that stands for many, as the mean loss of a batch for its rows or tokens. Rows that
    // are there a second time are in it, unless the batch was cut before.
    void update(const Tensor& value, double weight);
    void update(double value, double weight = 1);
    double compute() const { return ratio(); }
};

// exp of the mean negative log likelihood of a token, in nats. A model that computes its loss
// without logits has exp of the Mean of its losses instead.
class Perplexity : public Metric {
  public:
    explicit Perplexity(Accelerator& accelerator, std::int64_t ignore_index = -100);

    // Logits [rows, ..., classes] for labels [rows, ...].
    void update(const Tensor& logits, const Tensor& labels, const ValidRows& valid = {});
    double compute() const;

  private:
    std::int64_t ignore_index_;
};

struct AccuracyOptions {
    std::int64_t top_k =
        1;  // a label is right among the k highest scores; lower class first in ties
    std::int64_t ignore_index = -100;
};

// The part of the labels that are right, from 0 to 1.
class Accuracy : public Metric {
  public:
    explicit Accuracy(Accelerator& accelerator, AccuracyOptions options = {});

    // Scores (logits, probabilities) [rows, ..., classes], or classes [rows, ...], for labels
    // [rows, ...].
    void update(const Tensor& predictions, const Tensor& labels, const ValidRows& valid = {});
    double compute() const { return ratio(); }

  private:
    AccuracyOptions options_;
};

// How often a class was taken for another: the ground of what follows.
class ClassCounts : public Metric {
  public:
    // Predictions as Accuracy's.
    void update(const Tensor& predictions, const Tensor& labels, const ValidRows& valid = {});

  protected:
    ClassCounts(Accelerator& accelerator, std::string name, std::int64_t num_classes,
                std::int64_t ignore_index);
    std::int64_t num_classes() const { return num_classes_; }
    // i64 [label, prediction], on the CPU.
    Tensor counts() const { return total().view({num_classes_, num_classes_}); }

  private:
    std::int64_t num_classes_, ignore_index_;
};

enum class Normalize : std::uint8_t { none, by_label, by_prediction, by_all };

class ConfusionMatrix : public ClassCounts {
  public:
    ConfusionMatrix(Accelerator& accelerator, std::int64_t num_classes,
                    std::int64_t ignore_index = -100)
        : ClassCounts(accelerator, "ConfusionMatrix", num_classes, ignore_index) {}

    // [label, prediction] on the CPU: counts in i64, or f64 of which each row, each column or all
    // sum up to 1; what nothing was counted for is 0.
    Tensor compute(Normalize how = Normalize::none) const;
};

// How the scores of classes become one: that of class `positive` (two classes); that of all counts
// taken together; the mean over classes; the mean weighted by how many labels each class has.
enum class Average : std::uint8_t { binary, micro, macro, weighted };

struct F1Options {
    Average average = Average::macro;
    std::int64_t positive = 1;
    std::int64_t ignore_index = -100;
    // As scikit-learn's: what a score with nothing in its denominator is. 0 or 1, or NaN, which is
    // left out of means. A class that is neither in labels nor in predictions counts as such.
    double zero_division = 0;
};

struct ClassScores {
    double precision, recall, f1;
};

// The scores of scikit-learn's precision_recall_fscore_support with labels=range(num_classes).
class F1 : public ClassCounts {
  public:
    F1(Accelerator& accelerator, std::int64_t num_classes, F1Options options = {});

    double compute() const { return scores().f1; }
    ClassScores scores() const;
    std::vector<ClassScores> per_class() const;

  private:
    F1Options options_;
};

}  // namespace axle::accel
