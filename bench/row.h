// A row of a benchmark: a call, the number of its bytes or operations, and its speed relative to
// the peak of the machine.
//
// A row is either cold or hot:
//     cold   several sets of operands, together usually larger than the last-level cache, are
//            used in turn, so that a call reads its operands from memory; bytes are compared with
//            the memory's peak
//     hot    one set, which stays in the caches as it does in a small model; bytes are compared
//            with the peak of L2
// Operations are always compared with the peak of f32 multiply-adds. Only the bytes that the
// algorithm must read and write once are counted; cache lines that are read before they are written
// are not counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/machine.h"

namespace axle::bench {

using Call = std::function<void()>;

struct Row {
    std::string name;
    std::function<Call()> prepare;  // creates a set of operands and returns a call that uses it
    // Operations of a call; if 0, the speed is computed from `bytes`.
    double flops = 0;
    double bytes = 0;  // bytes that a call reads and writes
    bool cold = true;
};

// Returns the calls of a row, one for each set of operands. Frees the operands of the previous row.
inline std::vector<Call>& calls_of(const Row& row) {
    static const Row* owner = nullptr;
    static std::vector<Call> calls;
    if (owner == &row) return calls;
    calls.clear();
    host_memory::empty_cache();
    owner = &row;
    const auto bytes = static_cast<std::int64_t>(row.bytes);
    const std::int64_t sets = row.cold && bytes > 0 ? 1 + cold_bytes() / bytes : 1;
    for (std::int64_t i = 0; i < sets; ++i) calls.push_back(row.prepare());
    for (const Call& call : calls) call();  // the first use of the operands allocates their pages
    return calls;
}

inline void run_row(benchmark::State& state, const Row& row) {
    const Peaks& peak = peaks(static_cast<int>(state.range(0)));
    const std::vector<Call>& calls = calls_of(row);
    std::size_t turn = 0;
    const auto start = Clock::now();
    for (auto _ : state) {
        calls[turn]();
        turn = turn + 1 < calls.size() ? turn + 1 : 0;
    }
    const double giga_calls = 1e-9 * static_cast<double>(state.iterations()) / seconds_since(start);
    if (row.flops > 0) {
        state.counters["GFLOP/s"] = row.flops * giga_calls;
        state.counters["share"] = row.flops * giga_calls / peak.gflops;
    } else if (row.bytes > 0) {
        state.counters["GB/s"] = row.bytes * giga_calls;
        state.counters["share"] = row.bytes * giga_calls / (row.cold ? peak.memory : peak.cache);
    }
}

// Registers a row with Google Benchmark, for one and for two threads.
inline void add_row(Row row) {
    row.name += row.cold ? "/cold" : "/hot";
    const auto kept = std::make_shared<const Row>(std::move(row));
    benchmark::RegisterBenchmark(kept->name.c_str(),
                                 [kept](benchmark::State& state) { run_row(state, *kept); })
        ->ArgName("threads")
        ->Arg(1)
        ->Arg(2)
        ->MinTime(0.2)
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
}

// Runs the registered rows. The main functions of bench_kernels and bench_ops call this function.
inline int run_rows(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    for (const int threads : {1, 2}) {
        const Peaks& peak = peaks(threads);
        const auto add = [&](const char* name, double value) {
            benchmark::AddCustomContext("peak, threads " + std::to_string(threads) + ", " + name,
                                        std::to_string(static_cast<int>(value + 0.5)));
        };
        add("GFLOP/s", peak.gflops), add("memory GB/s", peak.memory), add("L2 GB/s", peak.cache);
    }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

}  // namespace axle::bench
