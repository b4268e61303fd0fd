// Optimizer steps, with one pass over memory. The parameter, its gradient and its state are read
// once per element, and the parameter and its state are written once. For AdamW in f32, these are
// 16 bytes and 12 bytes. Unscaling, clipping and weight decay are done in registers. Before this
// pass, a small kernel computes the values that depend on a group or on a slot's step count, such
// as bias corrections. It has one thread per slot. It also increments the step count, which must
// not change while other threads read it.
//
// In the update, a thread loads 16 bytes of each f32 array before it uses the first value. It loads
// the same number of elements of 16-bit arrays. One kernel handles f32, f16 and bf16: the dtype is
// uniform in a block, and memory latency hides the cost of the branches. f64 has its own kernel.
// Slots that are not aligned, and the last few elements, are processed one element at a time.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "kernels/cuda/optimizer/multi_tensor.cuh"
#include "kernels/ops/rounding.h"
#include "kernels/rules/optimizer_steps.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int32_t kChunk = 4096;

// The raw bits of several elements.
struct Bits {
    unsigned word[4];
};

template <class T, int N>
__device__ Bits bits_at(const void* data, std::int64_t i) {
    const Pack<T, N> pack = load_pack<T, N>(static_cast<const T*>(data) + i);
    Bits bits;
    memcpy(&bits, &pack, sizeof pack);
    return bits;
}

// Loads N elements, beginning with element i, without converting them, so that several loads can
// run concurrently.
template <int N>
__device__ Bits fetch(const void* data, DType dtype, std::int64_t i) {
    if constexpr (N <= 2)
        if (dtype == DType::f64) return bits_at<double, N>(data, i);
    if (dtype == DType::f32) return bits_at<float, N>(data, i);
    return bits_at<std::uint16_t, N>(data, i);
}

template <class T, class Lane, int N>
__device__ Pack<Lane, N> lanes_of(const Bits& bits) {
    Pack<T, N> pack;
    memcpy(static_cast<void*>(&pack), &bits, sizeof pack);
    Pack<Lane, N> lanes;
#pragma unroll
    for (int j = 0; j < N; ++j) lanes.at[j] = convert<Lane>(pack.at[j]);
    return lanes;
}

template <class Lane, int N>
__device__ Pack<Lane, N> widen(const Bits& bits, DType dtype) {
    if constexpr (N <= 2)
        if (dtype == DType::f64) return lanes_of<double, Lane, N>(bits);
    if (dtype == DType::f32) return lanes_of<float, Lane, N>(bits);
    if (dtype == DType::f16) return lanes_of<Half, Lane, N>(bits);
    return lanes_of<BFloat16, Lane, N>(bits);
}

template <class T, class Lane, int N>
__device__ void store_as_type(void* data, std::int64_t i, const Pack<Lane, N>& lanes) {
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = convert<T>(lanes.at[j]);
    store_pack(static_cast<T*>(data) + i, pack);
}

// Stores N elements after converting them to the dtype; f16 and bf16 are rounded to nearest.
template <class Lane, int N>
__device__ void store_elements(void* data, DType dtype, std::int64_t i,
                               const Pack<Lane, N>& lanes) {
    if (std::is_same_v<Lane, double> || dtype == DType::f32)
        return store_as_type<Lane>(data, i, lanes);
    if (dtype == DType::f16) return store_as_type<Half>(data, i, lanes);
    store_as_type<BFloat16>(data, i, lanes);
}

// Computes 16 random bits for each of the elements i to i + N - 1. N is 1, 2 or 4 and divides i.
// Adjacent threads compute the same Philox block; memory latency hides this cost.
template <int N>
__device__ void random_halves(const Philox& draws, std::int64_t i, std::uint32_t (&halves)[N]) {
    const auto block = draws.block(static_cast<std::uint64_t>(i) / 8);
    const std::uint32_t low = (i & 4) != 0 ? block[2] : block[0];
    const std::uint32_t high = (i & 4) != 0 ? block[3] : block[1];
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const std::uint32_t word = ((i + j) & 2) != 0 ? high : low;
        halves[j] = ((i + j) & 1) != 0 ? word >> 16 : word & 0xffff;
    }
}

template <class T, class Lane, int N>
__device__ void put_rounded(void* data, std::int64_t i, const Pack<Lane, N>& lanes,
                            const std::uint32_t (&halves)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j)
        pack.at[j] = round_stochastically<T>(static_cast<float>(lanes.at[j]), halves[j]);
    store_pack(static_cast<T*>(data) + i, pack);
}

template <class Lane, int N>
__device__ void store_stochastically(const Slot& slot, const Philox& draws, std::int64_t i,
                                     const Pack<Lane, N>& lanes) {
    std::uint32_t halves[N];
    random_halves(draws, slot.first_element + i, halves);
    if (slot.param_dtype == DType::f16) return put_rounded<Half>(slot.param, i, lanes, halves);
    put_rounded<BFloat16>(slot.param, i, lanes, halves);
}

#include "kernels/rules/optimizer_rules.inl"

// Updates elements [from, to), N at a time; to - from is a multiple of N.
template <class Lane, int N, class Factors>
__device__ void update_elements(const Slot& slot, int mode, unsigned arrays, const Factors& factors,
                                const Philox& draws, std::int64_t from, std::int64_t to) {
    void* const storage = slot.master != nullptr ? slot.master : slot.param;
    const DType storage_dtype = slot.master != nullptr ? DType::f32 : slot.param_dtype;
    for (std::int64_t i = from + static_cast<int>(threadIdx.x) * N; i < to; i += kThreads * N) {
        const Bits g_bits = fetch<N>(slot.grad, slot.grad_dtype, i);
        const Bits p_bits = fetch<N>(storage, storage_dtype, i);
        Pack<Lane, N> state[3] = {};
#pragma unroll
        for (int a = 0; a < 3; ++a)
            if ((arrays >> a & 1) != 0)
                state[a] = load_pack<Lane, N>(static_cast<Lane*>(slot.state[a]) + i);
        const Pack<Lane, N> g = widen<Lane, N>(g_bits, slot.grad_dtype);
        Pack<Lane, N> p = widen<Lane, N>(p_bits, storage_dtype);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            Lane s[3] = {state[0].at[j], state[1].at[j], state[2].at[j]};
            update(mode, factors, g.at[j], p.at[j], s);
            state[0].at[j] = s[0], state[1].at[j] = s[1], state[2].at[j] = s[2];
        }
#pragma unroll
        for (int a = 0; a < 3; ++a)
            if ((arrays >> a & 1) != 0) store_pack(static_cast<Lane*>(slot.state[a]) + i, state[a]);
        if (slot.master != nullptr) store_elements(storage, storage_dtype, i, p);
        if (slot.stochastic && is_half(slot.param_dtype))
            store_stochastically(slot, draws, i, p);
        else
            store_elements(slot.param, slot.param_dtype, i, p);
    }
}

// Returns whether N elements can be loaded with one aligned access of at most 16 bytes. The address
// of a null pointer counts as aligned.
template <int N>
__device__ bool in_packs(const void* data, DType dtype) {
    const std::int64_t size = size_of(dtype) * N;
    return size <= 16 && reinterpret_cast<std::uintptr_t>(data) % size == 0;
}
template <int N>
__device__ bool in_packs(const Slot& slot, DType lane) {
    return in_packs<N>(slot.param, slot.param_dtype) && in_packs<N>(slot.grad, slot.grad_dtype) &&
           in_packs<N>(slot.master, DType::f32) && in_packs<N>(slot.state[0], lane) &&
           in_packs<N>(slot.state[1], lane) && in_packs<N>(slot.state[2], lane);
}

template <class Rule>
__global__ void count_step(AXLE_TABLE(Slot) table, const typename Rule::Group* groups,
                           const StepScalars* scalars, StepOf<Rule>* steps) {
    const auto row = static_cast<std::int32_t>(thread_in_grid());
    if (row >= table.rows || is_skipped(scalars)) return;
    const Slot& slot = table.row[row];
    steps[row] = step_of<Rule>(slot, groups[slot.group], scalars);
}

template <class Lane, class Rule>
__global__ void __launch_bounds__(kThreads)
    update_chunk(AXLE_TABLE(Slot) table, const StepScalars* scalars, const StepOf<Rule>* steps) {
    if (is_skipped(scalars)) return;
    auto [row, from, to] = stretch_of(table, blockIdx.x);
    const Slot& slot = table.row[row];
    const int mode = steps[row].mode;
    const unsigned arrays = Rule::arrays(mode);
    const auto factors = factors_in<Rule, Lane>(steps[row]);
    const Philox draws = rounding_random(slot, steps[row]);
    constexpr int kN = kPack<Lane>;
    if (in_packs<kN>(slot, dtype_of<Lane>)) {
        const std::int64_t end = to - (to - from) % kN;
        update_elements<Lane, kN>(slot, mode, arrays, factors, draws, from, end);
        from = end;
    }
    update_elements<Lane, 1>(slot, mode, arrays, factors, draws, from, to);
}

// Updates the slots whose dtype is computed in the type Lane (float or double).
template <class Lane, class Rule>
void update_lanes(Cuda& on, std::span<const Slot> slots, const typename Rule::Group* groups,
                  const StepScalars* scalars) {
    const auto wanted = [](const Slot& slot) {
        return (slot.param_dtype == DType::f64) == std::is_same_v<Lane, double>;
    };
    for_each_table(slots, kChunk, wanted, [&](const Table<Slot>& table) {
        DeviceScratch scratch(on);
        auto* const steps = scratch.take<StepOf<Rule>>(table.rows);
        start(on, {grid_for(on, table.rows, kWarp), kWarp}, &count_step<Rule>, table, groups,
              scalars, steps);
        if (table.chunks() == 0) return;
        start(on, {{table.chunks()}, kThreads}, &update_chunk<Lane, Rule>, table, scalars, steps);
    });
}

template <class Rule>
void update_slots(Cuda& on, std::span<const Slot> slots, const typename Rule::Group* groups,
                  const StepScalars* scalars) {
    update_lanes<float, Rule>(on, slots, groups, scalars);
    update_lanes<double, Rule>(on, slots, groups, scalars);
}

}  // namespace

#define AXLE_KERNEL(Rule, NAME)                                                 \
    void NAME(Cuda& on, std::span<const Slot> slots, const Rule::Group* groups, \
              const StepScalars* scalars) {                                     \
        update_slots<Rule>(on, slots, groups, scalars);                         \
    }
AXLE_OPTIMIZER_RULES(AXLE_KERNEL)

}  // namespace axle::kernels
