// A row of bench_gpu_kernels: a call, the number of its bytes or operations, and its speed relative
// to a copy or a large matrix product on this GPU.
//
// A row has up to 64 sets of operands, which are used in turn. Unless the operands are small, the
// sets are together several times larger than the GPU's last-level cache, so that a call reads its
// operands from memory. Operands are random numbers, because zeros need less power and run faster.
// Only the bytes that the algorithm must read and write once are counted. A sample is the time
// between two events around many calls; the result is the median of the samples.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/sizes.h"
#include "core/cuda.h"
#include "core/launch.h"
#include "core/ops.h"
#include "kernels/exec.h"

namespace axle::bench {

using Call = std::function<void()>;

inline constexpr Device kGpu = {Device::Type::cuda, 0};

inline kernels::Cuda& gpu() { return cuda_context(0); }

// Return an operand: with random elements, uninitialized, or with random indices less than `below`.
// Calls use views of these tensors.
inline Tensor operand(const Shape& shape, DType dtype = f32) { return randn(shape, {dtype, kGpu}); }
inline Tensor room(const Shape& shape, DType dtype = f32) { return empty(shape, {dtype, kGpu}); }
inline Tensor indices(std::int64_t below, const Shape& shape) {
    return randint(0, below, shape, {i64, kGpu});
}

inline double width_of(DType t) { return static_cast<double>(size_of(t)); }

struct GpuRow {
    std::string op;
    DType dtype = f32;
    std::string shape;
    // Creates a set of operands and returns a call that uses it.
    std::function<Call()> prepare = {};
    double bytes = 0;  // bytes that a call reads and writes
    // Operations of a call; if 0, the speed is computed from `bytes`.
    double flops = 0;
};

// The measured peak rates of this GPU.
struct GpuRoof {
    double bytes = 0, flops = 0;  // bytes and operations per second
};

class GpuTable {
  public:
    // Rows run only if their text "op dtype shape" contains `only`.
    explicit GpuTable(std::string only) : only_(std::move(only)) {}

    bool wants(const GpuRow& row) const {
        return str(row.op, " ", row.dtype, " ", row.shape).find(only_) != std::string::npos;
    }

    // Measures a row and prints it as a line of JSON. If a row fails, prints the error and
    // continues.
    void run(const GpuRow& row) const {
        if (!wants(row)) return;
        nlohmann::json line = {{"op", row.op}, {"dtype", name_of(row.dtype)}, {"shape", row.shape}};
        try {
            kernels::take_library_warning();  // discards warnings of other rows
            const double ms = milliseconds_of(row);
            line["ms"] = ms;
            const bool computes = row.flops > 0;
            const double rate = (computes ? row.flops : row.bytes) / ms * 1e3;
            line[computes ? "tflops" : "gb_per_s"] = rate * (computes ? 1e-12 : 1e-9);
            const double roof = computes ? roof_.flops : roof_.bytes;
            if (roof > 0) line["roof_share"] = rate / roof;
        } catch (const Error& error) {
            line["error"] = error.what();
        }
        if (const std::string slower = kernels::take_library_warning(); !slower.empty())
            line["fallback"] = slower;
        std::cout << line.dump() << std::endl;
        cuda::empty_cache();
    }

    // Measures the two reference rows. All other rows are compared with them.
    void set_roof(const GpuRow& copy, const GpuRow& product) {
        roof_.bytes = copy.bytes / milliseconds_of(copy) * 1e3;
        roof_.flops = product.flops / milliseconds_of(product) * 1e3;
        const nlohmann::json line = {{"roof_gb_per_s", roof_.bytes * 1e-9},
                                     {"roof_tflops", roof_.flops * 1e-12}};
        std::cout << line.dump() << std::endl;
    }

    // Returns the median time of a call in milliseconds.
    static double milliseconds_of(const GpuRow& row) {
        const std::vector<Call> calls = sets_of(row);
        std::size_t turn = 0;
        const auto next = [&] {
            calls[turn]();
            turn = turn + 1 < calls.size() ? turn + 1 : 0;
        };
        // The first calls are not measured, because they create plans and tune matrix products.
        for (std::size_t i = 0; i < std::max<std::size_t>(6, calls.size()); ++i) next();
        cuda::synchronize();
        constexpr double kSampleMs = 4;
        const double once = sample(next, 3);
        const int repeats = static_cast<int>(std::clamp(kSampleMs / once, 1.0, 400.0));
        std::array<double, 15> times;
        for (double& ms : times) ms = sample(next, repeats);
        std::ranges::nth_element(times, times.begin() + 7);
        return times[7];
    }

  private:
    static std::vector<Call> sets_of(const GpuRow& row) {
        const auto cache = static_cast<double>(cuda::get_device_properties().l2_cache_size);
        const double sets = row.bytes > 0 ? 1 + 4 * cache / row.bytes : 1;
        std::vector<Call> calls;
        for (int i = 0; i < static_cast<int>(std::min(sets, 64.0)); ++i)
            calls.push_back(row.prepare());
        return calls;
    }

    // Returns the mean time of `repeats` calls in milliseconds.
    template <class F>
    static double sample(F&& call, int repeats) {
        const cuda::Stream stream = cuda::current_stream();
        const cuda::Event begin(true), end(true);
        begin.record(stream);
        for (int i = 0; i < repeats; ++i) call();
        end.record(stream);
        cuda::synchronize();
        return std::max(begin.elapsed_time(end) / repeats, 1e-6);
    }

    std::string only_;
    GpuRoof roof_;
};

}  // namespace axle::bench
