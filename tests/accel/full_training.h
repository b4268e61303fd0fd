// A training run that writes checkpoints, the files of all built-in trackers, profiles and tables.
// Tests check these files.
#pragma once

#include <sstream>
#include <string>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "accel/utils/progress.h"
#include "accel/utils/text.h"
#include "core/files/file.h"
#include "core/profiler/profiler.h"
#include "tests/accel/training.h"

namespace axle::tests {

inline profiler::Trace fixed_trace() {
    profiler::Trace trace;
    trace.start = 1'000'000;
    trace.end = 9'999'999'999;
    trace.threads = {{0, "main"}, {12345, "worker"}};
    for (int i = 0; i < 3; ++i)
        trace.events.push_back({.name = "matmul",
                                .category = profiler::Category::op,
                                .thread = 12345 * i,
                                .start = 2'345'678 + i,
                                .end = 5'432'109'876 + i,
                                .self = 1'234'567'890,
                                .bytes = 12'345'678,
                                .self_bytes = 1'234,
                                .operands = {{1000, 2000}, {2000, 3000}}});
    trace.samples = {{3'456'789, 1'234'567, 7'654'321}};
    return trace;
}

template <class F>
std::string refusal(F&& call) {
    try {
        call();
    } catch (const Error& error) {
        return std::string(error.what()) + '\n';
    }
    return "nothing was thrown\n";
}

inline std::string texts() {
    std::ostringstream lines;
    accel::ProgressBar bar(12345, {.title = "train", .start = 12344, .out = &lines});
    bar.update(12345, "loss " + str(1234.5));
    const std::string line = lines.str();
    return line.substr(0, line.find('[')) + '\n' + accel::human_bytes(1'234'567) + '\n' +
           str(full({2}, 12345.678), ' ', Shape{1000, 2000}, ' ', 1234567, ' ', 0.5, ' ', true) +
           '\n' + refusal([] {
               matmul(zeros({1000, 2000}), zeros({3000, 4000}));
           }) +
           refusal([] { from_json("{\"x\": 1.5, \"y\": 1e}"); }) +
           refusal([] { accel::Accelerator({.gradient_accumulation_steps = -1000}); }) +
           str(from_json("[1.5, 1234567, -2.25e-3]"));
}

inline void write_tables(const std::string& folder) {
    const auto operations = profiler::key_averages(fixed_trace());
    write_file_atomically(folder + "/table.txt", profiler::table(operations, {}));
    profiler::export_chrome_trace(fixed_trace(), folder + "/trace.json", 1234);
    write_file_atomically(folder + "/texts.txt", texts());
}

// Trains, and calls each() in every iteration.
template <class F>
void train(const std::string& folder, F&& each) {
    Training training(3, 2);
    accel::Accelerator accelerator(
        {.log_with = {"tensorboard", "jsonl", "csv"}, .project_dir = folder});
    accelerator.init_trackers(
        "run", {{"lr", 1234.5}, {"steps", 1234567}, {"deep", {{"rate", 1.25e-5}, {"on", true}}}});
    auto profile = accelerator.profile(
        {.record_shapes = true, .profile_memory = true, .output_trace_dir = folder + "/profile"});
    std::int64_t step = 1'000'000;
    for (const double loss : training.run(2, [&] { each(); })) {
        accelerator.log({{"loss", loss},
                         {"weights", training.net.in.weight},
                         {"lr", training.adamw.param_groups()[0].lr},
                         {"note", str("step ", step)}},
                        ++step);
        profile.step();
    }
    accelerator.get_tracker("tensorboard").log_images({{"dots", rand({8, 8})}}, step);
    for (accel::Tracker* tracker : accelerator.trackers())
        tracker->log_table("rows", {"n", "x"}, Tree::list({Tree::list({1234567, 1234.5})}), step);
    for (int i = 0; i < 3; ++i)
        training.accelerator.save_state(folder + "/step_" + std::to_string(i));
    accel::rotate_checkpoints(folder, 2);
    training.accelerator.load_state(folder + "/step_2");
    profile.stop();
    accelerator.end_training();
    write_tables(folder);
}

}  // namespace axle::tests
