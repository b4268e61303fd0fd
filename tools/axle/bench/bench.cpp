// Implements the command `axle bench`, which measures kernels.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/targets.h"

#include "accel/utils/progress.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/launch.h"
#include "core/memory/memory.h"
#include "core/random.h"
#include "core/text/text.h"
#include "kernels/error.h"
#include "kernels/float_control.h"
#include "tools/axle/bench/jobs.h"
#include "tools/axle/bench/library.h"
#include "tools/axle/bench/row.h"
#include "tools/axle/commands.h"
#include "tools/options/options.h"
#include "tools/trainer/report.h"

namespace axle::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<const char*, Vectors> kTargets[] = {{"baseline", Vectors::portable},
                                                        {"avx2", Vectors::avx2},
                                                        {"avx512", Vectors::avx512},
                                                        {"avx512_bf16", Vectors::avx512_bf16},
                                                        {"avx512_amx", Vectors::avx512_amx}};

Vectors vectors_of(const std::string& target) {
    for (const auto& [name, vectors] : kTargets)
        if (target == name) return vectors;
    return Vectors::portable;
}

// Selects the instruction set, or keeps the default if `target` is empty. Must be called before the
// first kernel runs. Throws UsageError if the name is unknown, or this CPU or this build does not
// have the instruction set.
void select_target(const std::string& target) {
    if (target.empty()) return;
    std::vector<std::string> names;
    for (const auto& [name, vectors] : kTargets) names.emplace_back(name);
    if (std::ranges::count(names, target) == 0)
        throw UsageError(
            str("bench: the target must be one of ", joined(names), ": ", in_quotes(target)));
    if (const char* const only = kernels::only_target_name(); only && !target.starts_with(only))
        throw UsageError(str("bench: this build has kernels for the target ", only,
                             " only (AXLE_NATIVE=ON): ", in_quotes(target)));
    ::setenv("AXLE_CPU_TARGET", target.c_str(), 1);
    const std::string selected = kernels::cpu_target_name();
    if (selected != target)
        throw UsageError(str("bench: this CPU does not support the target ", in_quotes(target),
                             "; the best that it supports is ", selected));
}

// Removes the operands from the caches of all cores. If the CPU is not an x86-64, writes to other
// memory instead, which removes them only from the caches that this core uses.
void flush_caches(const Problem& problem) {
#if defined(__x86_64__)
    constexpr std::int64_t kLine = 64;
    for (const auto* tensors : {&problem.inputs, &problem.outputs})
        for (const Tensor& x : *tensors) {
            const ConstView view = x.view();
            std::int64_t elements = 1;
            for (int d = 0; d < view.ndim; ++d) elements += (view.shape[d] - 1) * view.stride[d];
            const auto* const bytes = static_cast<const char*>(view.data);
            for (std::int64_t at = 0; at < elements * size_of(view.dtype); at += kLine)
                _mm_clflush(bytes + at);
        }
    _mm_mfence();
#else
    static_cast<void>(problem);
    static std::vector<char> other(static_cast<std::size_t>(cold_bytes()));
    for (std::size_t at = 0; at < other.size(); at += 64) ++other[at];
#endif
}

volatile std::sig_atomic_t signal_received = 0;

// Measures all jobs. Ends early, with the rows so far, after SIGINT or SIGTERM.
class Runner {
  public:
    Runner(const Settings& settings, std::vector<OtherKernel> others, Results& results)
        : settings_(settings), others_(std::move(others)), results_(results) {}

    void run(const std::vector<Job>& jobs) {
        print(titles());
        const auto each =
            static_cast<std::int64_t>(settings_.threads.size() * settings_.caches.size());
        std::int64_t total = 0;
        for (const Job& job : jobs)
            total +=
                each * (1 + std::ranges::count(others_, job.kernel->name, &OtherKernel::kernel));
        accel::ProgressBar bar(total, {.title = "bench", .unit = "row", .leave = false});
        bar_ = &bar;
        for (const Job& job : jobs) {
            Problem problem = prepare(*job.kernel, job.call);
            for (const int threads : settings_.threads)
                for (const std::string& cache : settings_.caches) {
                    if (signal_received != 0) return;
                    run_row(job, problem, threads, cache == "flushed");
                }
        }
    }

  private:
    void run_row(const Job& job, Problem& problem, int threads, bool flushed) {
        const Peaks& peak = results_.peaks.at(threads);
        kernels::set_num_threads(threads);
        const bool arithmetic = job.kernel->limit == Limit::arithmetic;
        const bool in_caches = !flushed && problem.bytes < static_cast<double>(last_cache_bytes());
        const double bandwidth = in_caches ? peak.cache : peak.memory;
        Row row = {.kernel = job.kernel->name,
                   .call = job.call,
                   .threads = threads,
                   .flushed = flushed,
                   .limit = job.kernel->limit,
                   .operations = problem.operations,
                   .bytes = problem.bytes,
                   .peak = arithmetic ? peak.arithmetic(job.call.dtype) : bandwidth};
        const kernels::NoTraps no_traps;
        row.timing = time(problem, flushed, [&] { problem.call(cpu_context()); });
        row.axle_seconds = row.timing.seconds;
        add(row);
        std::vector<Tensor> expected;
        for (const OtherKernel& other : others_) {
            if (other.kernel != job.kernel->name) continue;
            if (signal_received != 0) return;
            if (expected.empty()) expected = outputs_of(problem);
            run_other(row, other, problem, expected);
        }
    }

    // Measures a kernel of another library with the operands of a row.
    void run_other(Row row, const OtherKernel& other, Problem& problem,
                   const std::vector<Tensor>& expected) {
        row.implementation = other.name;
        OtherCall call(other, problem);
        clear_outputs(problem);
        if (const std::int32_t code = call(row.threads); code != 0) {
            row.error = str("not supported: the kernel returned ", code);
            if (other.named)
                add(row);
            else
                bar_->update(++done_);
            return;
        }
        row.difference = difference(problem, expected);
        row.timing = time(problem, row.flushed, [&] { call(row.threads); });
        add(row);
    }

    template <class Call>
    Timing time(const Problem& problem, bool flushed, Call&& call) const {
        if (!flushed) return time_hot(settings_.min_seconds, call);
        return time_flushed(
            settings_.min_seconds, [&] { flush_caches(problem); }, call);
    }

    void add(const Row& row) {
        print(text_of(row));
        results_.rows.push_back(row);
        bar_->update(++done_);
    }
    // Prints a line to stdout, above the progress bar if both are on the terminal.
    void print(const std::string& line) {
        if (bar_ != nullptr && isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1)
            bar_->print(line);
        else
            std::cout << line << std::endl;
    }

    const Settings& settings_;
    std::vector<OtherKernel> others_;
    Results& results_;
    accel::ProgressBar* bar_ = nullptr;
    std::int64_t done_ = 0;
};

void print_list(const FoundLibraries& found) {
    for (const Kernel& kernel : kernels_of_bench()) {
        std::vector<std::string> shapes;
        for (const Sizes& shape : kernel.shapes) shapes.push_back(shape_text(shape));
        std::cout << kernel.name << ':' << kernel.shape
                  << "\n    shapes by default: " << joined(shapes) << "\n    --dtype "
                  << joined(names_of(kernel.dtypes)) << "  --layout " << joined(kernel.layouts)
                  << "\n    " << kernel.operands << '\n';
    }
    std::cout << "\nTarget: " << kernels::cpu_target_name() << "\nOther libraries:\n";
    for (const auto& [name, place] : found.places)
        std::cout << "    " << name << ": " << place << '\n';
}

// Throws FileError if the path is a folder, or its folder is not writable. Does nothing if the path
// is empty. Called before the measurement, whose results would otherwise be lost.
void check_writable(const std::string& path) {
    if (path.empty()) return;
    if (fs::is_directory(path))
        throw FileError(str("bench: the file is a folder: ", in_quotes(path)));
    const fs::path folder = fs::absolute(path).parent_path();
    if (::access(folder.c_str(), W_OK) != 0)
        throw FileError(str("bench: the folder is not writable: ", in_quotes(folder.string()), ": ",
                            std::strerror(errno)));
}

void write(const std::string& path, const std::string& text) {
    if (path.empty()) return;
    write_file_atomically(path, text, Durability::none);
    std::cout << "wrote " << path << '\n';
}

// Adds the kernels of a library. Throws UsageError if no job measures one of its kernels.
void add_library(const std::string& path, const std::vector<Job>& jobs, FoundLibraries& found) {
    bool measured = false;
    std::vector<std::string> names;
    for (OtherKernel& kernel : open_kernel_library(path)) {
        names.push_back(kernel.kernel);
        measured = measured || std::ranges::any_of(jobs, [&](const Job& job) {
                       return job.kernel->name == kernel.kernel;
                   });
        found.kernels.push_back(std::move(kernel));
    }
    if (!measured)
        throw UsageError(str("bench: no kernel of the library is measured: ", in_quotes(path),
                             " has ", joined(names)));
}

int run(Settings settings) {
    select_target(settings.target);
    std::vector<std::string> names = settings.compared.empty() ? kLibraryNames : settings.compared;
    FoundLibraries found = find_libraries(names);
    if (settings.list) {
        print_list(found);
        return 0;
    }
    const std::vector<Job> jobs = jobs_of(settings);
    for (const std::string& path : settings.libraries) add_library(path, jobs, found);
    for (const std::string& path : {settings.json, settings.html, settings.svg})
        check_writable(path);
    if (settings.threads.empty()) settings.threads = {kernels::num_threads()};
    if (settings.caches.empty()) settings.caches = {"hot", "flushed"};

    struct sigaction stop = {};
    stop.sa_handler = [](int number) { signal_received = number; };
    stop.sa_flags = SA_RESETHAND;  // a second signal ends the program
    sigaction(SIGINT, &stop, nullptr);
    sigaction(SIGTERM, &stop, nullptr);

    // Without a limit, Linux would end the program when the operands exceed the memory.
    host_memory::set_limit(sysconf(_SC_PHYS_PAGES) / 8 * 7 * sysconf(_SC_PAGE_SIZE));
    manual_seed(1);
    Results results = {.target = kernels::cpu_target_name(),
                       .min_seconds = settings.min_seconds,
                       .machine = trainer::environment()};
    std::cout << "Target: " << results.target << '\n';
    for (const int threads : settings.threads) {
        results.peaks[threads] = peaks(threads, vectors_of(results.target));
        std::cout << text_of(results.peaks[threads], threads) << std::endl;
    }
    Runner(settings, std::move(found.kernels), results).run(jobs);
    write(settings.json, to_json(results));
    write(settings.html, to_html(results));
    write(settings.svg, to_svg(results, std::ranges::max(settings.threads)));
    return signal_received == 0 ? 0 : 128 + signal_received;
}

}  // namespace
}  // namespace axle::bench

namespace axle::launcher {

int run_bench(std::vector<std::string> arguments) {
    bench::Settings settings;
    tools::Options options(
        "Measures kernels on this CPU, and compares them with the peaks of the CPU and with other "
        "libraries. Without names of kernels, measures all of them.",
        "axle bench");
    options.add("kernels", settings.kernels,
                "Kernels with or without a shape, such as softmax matmul:256x3072x768");
    options.add_flag("--list", settings.list, "List kernels and libraries, and measure nothing");
    options.add("--dtype", settings.dtypes, "f32, f64, bf16 or f16").repeatable();
    options
        .add("--layout", settings.layouts,
             "How operands are stored: N is row-major, T is transposed; two letters for matmul")
        .repeatable();
    options.add("--threads", settings.threads, "The number of threads; by default one per CPU")
        .range(1, 1024)
        .repeatable();
    options
        .add("--cache", settings.caches,
             "hot: the operands stay in the caches. flushed: they are in memory. By default both")
        .one_of({"hot", "flushed"})
        .repeatable();
    options.add("--target", settings.target,
                "The instruction set: baseline, avx2, avx512, avx512_bf16 or "
                "avx512_amx");
    options
        .add("--compare", settings.compared,
             "Compare only with this library: eigen, openblas, onednn or none")
        .one_of({"eigen", "openblas", "onednn", "none"})
        .repeatable();
    options.add("--library", settings.libraries, "A shared library with your own kernels")
        .repeatable();
    options.add("--json", settings.json, "Write the results to this file");
    options.add("--html", settings.html, "Write a page with the rooflines to this file");
    options.add("--svg", settings.svg,
                "Write the roofline for the largest number of threads to this file");
    options.show_defaults();
    options.add("--min-time", settings.min_seconds, "Measure each row for this time, in seconds")
        .range(1e-6, 3600.0);
    options.set_footer("docs/kernels.md explains the results and how to measure your own kernel.");
    if (!options.parse(std::move(arguments))) return 0;
    return bench::run(std::move(settings));
}

}  // namespace axle::launcher
