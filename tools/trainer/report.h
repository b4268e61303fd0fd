// Writes the report of a run: an HTML page without further files, for light and dark mode and for
// all screen sizes.
#pragma once

#include <string>
#include <vector>

#include "core/profiler/trace.h"
#include "core/tree/tree.h"

namespace axle::trainer {

// An image with a caption.
struct ReportPicture {
    std::string png;  // the bytes of a PNG file
    std::string caption;
    bool wrong = false;  // whether to mark it as a wrong prediction
};

struct Report {
    std::string title;  // such as "train_gpt"
    // The results: a map from names to numbers and texts.
    Tree results = Tree::map();
    // The lines of metrics.jsonl. The report has a curve for each number except step and epoch; the
    // curve val_x is in the chart of x. The format of a value depends on an ending of its name such
    // as _bytes or _per_s.
    std::vector<Tree> metrics = {};
    // The contents of two tables. An entry b of a nested map a has the name a.b in the table.
    Tree configuration = Tree::map(), environment = Tree::map();
    std::vector<profiler::Row> operations = {};  // time of each operation
    std::string text = {};                       // a text that the model has generated
    std::vector<ReportPicture> pictures = {};    // images with predictions
};

// Reads a metrics.jsonl file. Ignores a last line without a newline. Throws FileError if a line is
// not an object with a number "step".
std::vector<Tree> read_metrics(const std::string& path);

// Returns a map with Axle's version, the CPU, the number of threads, the system, the compiler and
// the current time.
Tree environment();

// Returns the HTML page.
std::string to_html(const Report& report);

}  // namespace axle::trainer
