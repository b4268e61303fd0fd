// Writes the report of a run: an HTML page without further files, for light and dark mode and for
// all screen sizes.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/profiler/trace.h"
#include "core/tree/tree.h"
#include "tools/trainer/chart.h"

namespace axle::trainer {

// An image with a caption.
struct ReportPicture {
    std::string png;  // the bytes of a PNG file
    std::string caption;
    bool wrong = false;  // whether the report marks the prediction as wrong
};

// The numbers of a metrics.jsonl file by name. Needs 16 bytes of memory for each number. Names
// after the first kMaxNames are ignored.
class Metrics {
  public:
    static constexpr std::size_t kMaxNames = 256;

    Metrics() = default;
    Metrics(const std::vector<Tree>& rows);  // NOLINT: calls add() for each row

    // Adds the numbers of a row, except "step" and "epoch". Numbers that are not finite can be
    // strings, as in JSON (core/tree/tree.h). Throws ValueError or IndexError unless the row is a
    // map with a number "step".
    void add(const Tree& row);
    std::size_t rows() const { return rows_; }
    // Returns the names that have a finite number, ordered by the first row with such a number.
    const std::vector<std::string>& names() const { return names_; }
    // Returns the values of a name by step, or an empty curve.
    const Curve& curve(const std::string& name) const;

  private:
    std::size_t rows_ = 0;
    std::vector<std::string> names_;
    std::unordered_map<std::string, Curve> curves_;
};

struct Report {
    std::string title;  // such as "train_gpt"
    // The results: a map from names to numbers and texts.
    Tree results = Tree::map();
    // The report draws a curve for each name. A curve named val_x is drawn in the chart of x, if
    // there is one. The ending of a name, such as _bytes or _per_s, selects the format of its
    // values.
    Metrics metrics = {};
    // The contents of two tables. An entry b of a nested map a has the name a.b in the table.
    Tree configuration = Tree::map(), environment = Tree::map();
    std::vector<profiler::Row> operations = {};  // time of each operation
    std::string text = {};                       // a text that the model has generated
    std::vector<ReportPicture> pictures = {};    // images with predictions
};

// Reads a metrics.jsonl file, which is mapped and read line by line. Ignores a last line without a
// newline. Throws FileError if the file cannot be read, or if a line is not an object with a number
// "step" or has more than 1 MiB.
Metrics read_metrics(const std::string& path);

// Returns a map with Axle's version, the CPU, the number of threads, the system, the compiler and
// the current time.
Tree environment();

// Returns the report as an HTML page.
std::string to_html(const Report& report);

}  // namespace axle::trainer
