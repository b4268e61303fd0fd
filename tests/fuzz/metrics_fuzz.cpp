// Fuzzes the readers of metrics.jsonl and metrics.csv, which trackers continue. The first byte of
// the input is the first step that the run logs again, or 0 if there is no such step.
#include <filesystem>
#include <functional>
#include <string>

#include "accel/tracking/csv.h"
#include "accel/tracking/jsonl.h"
#include "core/files/file.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

void check(const std::string& name, Bytes input, const std::function<void()>& resume) {
    const std::string path = memory_file("run/" + name, input);
    if (!accepts(resume)) return;
    const std::string kept = read_file(path);
    require(text_of(input).starts_with(kept), "only the end of a file is removed");
    require(kept.empty() || kept.ends_with('\n'), "only complete lines are kept");
    resume();
    require(read_file(path) == kept, "reading a file again removes nothing");
}

template <class Tracker>
void resume(std::int64_t step) {
    static const std::filesystem::path file = memory_file("run/unused", {});
    static const std::string folder = file.parent_path().parent_path().string();
    Tracker tracker({.project_name = "run", .logging_dir = folder});
    tracker.start();
    tracker.resume(step == 0 ? std::nullopt : std::optional(step));
    tracker.finish();
}

}  // namespace

void fuzz(Bytes input) {
    if (input.empty()) return;
    const auto step = std::to_integer<std::int64_t>(input[0]);
    input = input.subspan(1);
    check("metrics.csv", input, [&] { resume<accel::CsvTracker>(step); });
    check("metrics.jsonl", input, [&] { resume<accel::JsonlTracker>(step); });
}

}  // namespace axle::tests
