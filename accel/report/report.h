// The report of a run: one page of HTML that opens from disk, needs nothing else, and is as good in
// light as in dark and on a phone as on a wide screen.
#pragma once

#include <string>
#include <vector>

#include "core/profiler/trace.h"
#include "core/tree/tree.h"

namespace axle::accel {

// An image with a line below it.
struct ReportPicture {
    std::string png;  // the file's bytes
    std::string caption;
    bool wrong = false;  // marked, as a prediction that is
};

struct Report {
    std::string title;  // "train_gpt"
    // What came out, by name: numbers and texts.
    Tree results = Tree::map();
    // The lines of metrics.jsonl. Every number of theirs but step and epoch becomes a curve; val_x
    // shares the chart of x. A name that ends in _bytes or _per_s is written so.
    std::vector<Tree> metrics = {};
    // Tables; nested maps are named a.b.
    Tree configuration = Tree::map(), environment = Tree::map();
    std::vector<profiler::Row> operations = {};  // where the time went
    std::string text = {};                       // what the model wrote
    std::vector<ReportPicture> pictures = {};    // what it saw
};

// The lines of a metrics.jsonl. FileError for one that is not an object with a number "step"; a
// last line without an end is left out.
std::vector<Tree> read_metrics(const std::string& path);

// Version, CPU, threads, system, compiler, and when this was asked: what a figure depends on.
Tree environment();

std::string to_html(const Report& report);

}  // namespace axle::accel
