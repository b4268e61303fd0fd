// The choice between two ways to multiply bf16 operands: in pairs by the instruction of
// AVX512_BF16, or converted to f32. The instruction computes twice as many multiply-adds as an f32
// instruction, but some CPUs start it at a quarter of the rate, so both are measured.
#include "kernels/cpu/targets.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "kernels/cpu/matmul/gemm.h"

namespace axle::kernels {
namespace {

// The largest tile of one kind, with operands that fit the first cache.
template <class Unit>
class TimedTile {
  public:
    // Computes the tile a few times. Returns the time in seconds per multiply-add.
    double seconds() {
        constexpr int kCalls = 4;
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kCalls; ++i)
            tile_(kDepth, a_.data(), rows_, b_.data(), columns_, c_.data(), columns_, true);
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        return time.count() /
               static_cast<double>(kCalls * kDepth * UnitTraits<Unit>::kTerms * rows_ * columns_);
    }

  private:
    static constexpr std::int64_t kDepth = 128;

    const GemmKernels<Unit>& kernels_ = gemm_kernels<Unit>();
    std::int64_t rows_ = kernels_.max_rows, columns_ = 2 * kernels_.lanes;
    typename GemmKernels<Unit>::Tile tile_ = kernels_.tiles[rows_ / 2 - 1][1];
    std::vector<Unit> a_ = std::vector<Unit>(static_cast<std::size_t>(kDepth * rows_));
    std::vector<Unit> b_ = std::vector<Unit>(static_cast<std::size_t>(kDepth * columns_));
    std::vector<SumOf<Unit>> c_ =
        std::vector<SumOf<Unit>>(static_cast<std::size_t>(rows_ * columns_));
};

// Returns whether bf16 pairs take less than 1.1 times as long as f32. Takes the shortest of
// several times, which alternate, so that other programs do not change the result. On known CPUs
// the ratio of the times is about 2 or 1/2.
bool pairs_are_fast() {
    TimedTile<BFloat16Pair> pairs;
    TimedTile<float> floats;
    double of_pairs = std::numeric_limits<double>::infinity(), of_floats = of_pairs;
    for (int round = 0; round < 16; ++round) {
        of_pairs = std::min(of_pairs, pairs.seconds());
        of_floats = std::min(of_floats, floats.seconds());
    }
    return of_pairs < 1.1 * of_floats;
}

}  // namespace

bool uses_bf16_pairs() {
    static const bool chosen =
        multiplies_bf16() && (is_bf16_target_requested() || pairs_are_fast());
    return chosen;
}

}  // namespace axle::kernels
