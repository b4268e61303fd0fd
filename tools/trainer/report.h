// The report of a run: a self-contained HTML page for light and dark mode and for any screen size.
#pragma once

#include <string>
#include <vector>

#include "core/profiler/trace.h"
#include "core/tree/tree.h"

namespace axle::trainer {

// An image with a caption.
struct ReportPicture {
    std::string png;  // bytes of the file
    std::string caption;
    bool wrong = false;  // marks a wrong prediction
};

struct Report {
    std::string title;  // "train_gpt"
    // Results by name: numbers and texts.
    Tree results = Tree::map();
    // The lines of metrics.jsonl. Each number except step and epoch becomes a curve; val_x is drawn
    // in the chart of x. Names that end in _bytes or _per_s are formatted accordingly.
    std::vector<Tree> metrics = {};
    // The tables of the page, in which keys of nested maps become a.b.
    Tree configuration = Tree::map(), environment = Tree::map();
    std::vector<profiler::Row> operations = {};  // time by operation
    std::string text = {};                       // sample text of the model
    std::vector<ReportPicture> pictures = {};    // sample images
};

// Reads a metrics.jsonl file. Ignores a last line without a newline. Throws FileError if a line is
// not an object with a number "step".
std::vector<Tree> read_metrics(const std::string& path);

// Returns version, CPU, threads, system, compiler and the current time.
Tree environment();

// Returns the page.
std::string to_html(const Report& report);

}  // namespace axle::trainer
