// Inner loops of bf16 products on CPUs with AMX. The instruction tdpbf16ps multiplies 16 rows of 16
// pairs of a by 16 pairs of 16 columns of b, which takes 16 cycles: 16 times as many multiply-adds
// as f32 vectors in the same time. A tile has 2 x 2 accumulators, so each 1 KiB that is loaded is
// used twice. Loads of rows that cross a cache line would take longer than the products.
//
// Instructions are enabled per function by attributes, so this file needs no compiler flags.
#include "kernels/cpu/matmul/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

// Marks a function that is compiled for AMX.
#define AXLE_AMX __attribute__((target("amx-tile,amx-bf16")))

namespace axle::kernels {
namespace {

constexpr int kSide = 16;  // rows, columns and pairs of one tile register
static_assert(2 * kSide <= kMaxTileRows && 2 * kSide <= kMaxTileColumns);

// The operand of ldtilecfg: the shapes of the registers in bytes and rows.
struct TileShapes {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

constexpr TileShapes full_tiles() {
    TileShapes shapes;
    for (int i = 0; i < 8; ++i) shapes.row_bytes[i] = 64, shapes.rows[i] = kSide;
    return shapes;
}
alignas(64) constinit const TileShapes kFullTiles = full_tiles();

AXLE_AMX void start() { _tile_loadconfig(&kFullTiles); }
AXLE_AMX void stop() { _tile_release(); }

// Registers 0 to 3 are the accumulators, 4 and 5 are rows of a, and 6 and 7 are columns of b.
template <int kRowTiles, int kColumnTiles>
AXLE_AMX void tile(std::int64_t depth, const AmxPair* a, std::int64_t a_step, const AmxPair* b,
                   std::int64_t b_step, float* c, std::int64_t c_step, bool add) {
    constexpr bool kDown = kRowTiles == 2, kRight = kColumnTiles == 2;
    constexpr std::int64_t kPair = sizeof(AmxPair), kFloat = sizeof(float);
    float* const below = c + kSide * c_step;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (add) {
        _tile_loadd(0, c, c_step * kFloat);
        if constexpr (kRight) _tile_loadd(1, c + kSide, c_step * kFloat);
        if constexpr (kDown) _tile_loadd(2, below, c_step * kFloat);
        if constexpr (kDown && kRight) _tile_loadd(3, below + kSide, c_step * kFloat);
    }
    for (std::int64_t p = 0; p < depth; p += kSide, a += kSide, b += kSide * b_step) {
        _tile_loadd(6, b, b_step * kPair);
        _tile_loadd(4, a, a_step * kPair);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (kRight) {
            _tile_loadd(7, b + kSide, b_step * kPair);
            _tile_dpbf16ps(1, 4, 7);
        }
        if constexpr (kDown) {
            _tile_loadd(5, a + kSide * a_step, a_step * kPair);
            _tile_dpbf16ps(2, 5, 6);
        }
        if constexpr (kDown && kRight) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_step * kFloat);
    if constexpr (kRight) _tile_stored(1, c + kSide, c_step * kFloat);
    if constexpr (kDown) _tile_stored(2, below, c_step * kFloat);
    if constexpr (kDown && kRight) _tile_stored(3, below + kSide, c_step * kFloat);
}

constexpr GemmKernels<AmxPair>::Tile kTiles[][2] = {{&tile<1, 1>, &tile<1, 2>},
                                                    {&tile<2, 1>, &tile<2, 2>}};

}  // namespace

template <>
const GemmKernels<AmxPair>& gemm_kernels() {
    static constexpr GemmKernels<AmxPair> kKernels = {2 * kSide, kSide, kTiles, &start, &stop};
    return kKernels;
}

}  // namespace axle::kernels

#else

namespace axle::kernels {

template <>
const GemmKernels<AmxPair>& gemm_kernels() {
    static constexpr GemmKernels<AmxPair> kNone = {};
    return kNone;
}

}  // namespace axle::kernels

#endif
