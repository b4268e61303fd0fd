// One pass over memory per step: for each element the parameter, its gradient and its state are
// read once and written once (AdamW in f32: 16 bytes in, 12 bytes out), with unscaling, clipping
// and weight decay done in registers. What depends on a group or on a slot's step count (bias
// corrections) is worked out by a small kernel ahead, a thread per slot, which also counts the
// step: it is not counted while others read it.
//
// A thread of the update takes 16 bytes of each f32 stream (the same number of elements of 16-bit
// ones), all of them on their way before the first is used. One kernel serves all dtypes: they are
// uniform in a block, and what their branches cost disappears behind memory. Slots that are not
// aligned, and the last few elements, go one by one.
#include <cmath>

#include "kernels/cpu/optimizer_steps.h"
#include "kernels/cuda/multi_tensor.cuh"

namespace axle::inline v0::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int32_t kChunk = 4096;

// Elements as they lie in memory.
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

// N elements from the i-th, which may be converted when others have been asked for too.
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
__device__ void put_as(void* data, std::int64_t i, const Pack<Lane, N>& lanes) {
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = convert<T>(lanes.at[j]);
    store_pack(static_cast<T*>(data) + i, pack);
}

// Rounded to the dtype, which is that of a parameter in these lanes.
template <class Lane, int N>
__device__ void put(void* data, DType dtype, std::int64_t i, const Pack<Lane, N>& lanes) {
    if (std::is_same_v<Lane, double> || dtype == DType::f32) return put_as<Lane>(data, i, lanes);
    if (dtype == DType::f16) return put_as<Half>(data, i, lanes);
    put_as<BFloat16>(data, i, lanes);
}

__device__ bool is_skipped(const StepScalars* scalars) {
    return scalars != nullptr && scalars->found_inf != 0;
}

__device__ double grad_factor(const StepScalars* scalars, bool maximize) {
    const double factor = scalars != nullptr ? scalars->inv_scale * scalars->clip : 1.0;
    return maximize ? -factor : factor;
}

// A rule has its group, the step that it works out for a slot, and the update of an element of the
// slot: of the gradient, the parameter, and as many of first, second and second_max as buffers().

struct Sgd {
    using Group = SgdGroup;
    using Step = SgdStep;

    static __device__ Step step(const Slot& slot, const Group& group, const StepScalars* scalars) {
        Step s = {};
        s.lr = group.lr;
        s.grad = grad_factor(scalars, group.maximize);
        s.decay = group.weight_decay;
        s.kind = SgdKind::plain;
        if (group.momentum == 0) return s;
        const bool first = (*slot.step += 1) == 1;
        s.kind = group.nesterov ? SgdKind::nesterov : SgdKind::momentum;
        s.momentum = group.momentum;
        s.keep = first ? 0 : group.momentum;
        s.add = first ? 1 : 1 - group.dampening;
        return s;
    }

    template <class T>
    struct Update {
        __device__ explicit Update(const Slot&, const Step& s)
            : lr(s.lr),
              grad(s.grad),
              decay(s.decay),
              momentum(s.momentum),
              keep(s.keep),
              add(s.add),
              kind(s.kind) {}
        __device__ int buffers() const { return kind == SgdKind::plain ? 0 : 1; }
        __device__ void operator()(T g, T& p, T& b, T&, T&) const {
            g = g * grad + decay * p;
            if (kind != SgdKind::plain) b = b * keep + add * g;
            if (kind == SgdKind::momentum) g = b;
            if (kind == SgdKind::nesterov) g = g + momentum * b;
            p = p - lr * g;
        }
        T lr, grad, decay, momentum, keep, add;
        SgdKind kind;
    };
};

struct Adam {
    using Group = AdamGroup;
    using Step = AdamStep;

    static __device__ Step step(const Slot& slot, const Group& group, const StepScalars* scalars) {
        const double t = *slot.step += 1;
        Step s = {};
        s.grad = grad_factor(scalars, group.maximize);
        s.decay = group.decoupled ? 0 : group.weight_decay;
        s.keep = group.decoupled ? 1 - group.lr * group.weight_decay : 1;
        s.beta2 = group.beta2;
        s.rest1 = 1 - group.beta1;
        s.rest2 = 1 - group.beta2;
        const double root = sqrt(1 - pow(group.beta2, t));
        s.size = group.lr * root / (1 - pow(group.beta1, t));
        s.eps = group.eps * root;
        return s;
    }

    template <class T>
    struct Update {
        __device__ Update(const Slot& slot, const Step& s)
            : grad(s.grad),
              decay(s.decay),
              keep(s.keep),
              beta2(s.beta2),
              rest1(s.rest1),
              rest2(s.rest2),
              size(s.size),
              eps(s.eps),
              amsgrad(slot.second_max != nullptr) {}
        __device__ int buffers() const { return amsgrad ? 3 : 2; }
        __device__ void operator()(T g, T& p, T& m, T& v, T& largest) const {
            g = g * grad + decay * p;
            m = m + rest1 * (g - m);
            v = v * beta2 + rest2 * g * g;
            if (!amsgrad || v > largest) largest = v;
            p = p * keep - size * (m / (sqrt(largest) + eps));
        }
        T grad, decay, keep, beta2, rest1, rest2, size, eps;
        bool amsgrad;
    };
};

// N elements at a time of [from, to), which they fill.
template <class Lane, int N, class Update>
__device__ void update_elements(const Slot& slot, const Update& update, std::int64_t from,
                                std::int64_t to) {
    void* const home = slot.master != nullptr ? slot.master : slot.param;
    const DType home_dtype = slot.master != nullptr ? DType::f32 : slot.param_dtype;
    auto* const first = static_cast<Lane*>(slot.first);
    auto* const second = static_cast<Lane*>(slot.second);
    auto* const second_max = static_cast<Lane*>(slot.second_max);
    const int buffers = update.buffers();
    for (std::int64_t i = from + static_cast<int>(threadIdx.x) * N; i < to; i += kThreads * N) {
        const Bits g_bits = fetch<N>(slot.grad, slot.grad_dtype, i);
        const Bits p_bits = fetch<N>(home, home_dtype, i);
        Pack<Lane, N> a = {}, b = {}, c = {};
        if (buffers > 0) a = load_pack<Lane, N>(first + i);
        if (buffers > 1) b = load_pack<Lane, N>(second + i);
        if (buffers > 2) c = load_pack<Lane, N>(second_max + i);
        const Pack<Lane, N> g = widen<Lane, N>(g_bits, slot.grad_dtype);
        Pack<Lane, N> p = widen<Lane, N>(p_bits, home_dtype);
#pragma unroll
        for (int j = 0; j < N; ++j) update(g.at[j], p.at[j], a.at[j], b.at[j], c.at[j]);
        if (buffers > 0) store_pack(first + i, a);
        if (buffers > 1) store_pack(second + i, b);
        if (buffers > 2) store_pack(second_max + i, c);
        if (slot.master != nullptr) put(home, home_dtype, i, p);
        put(slot.param, slot.param_dtype, i, p);
    }
}

// Whether N elements of a stream are one access that it is aligned for; a null pointer is.
template <int N>
__device__ bool in_packs(const void* data, DType dtype) {
    const std::int64_t size = size_of(dtype) * N;
    return size <= 16 && reinterpret_cast<std::uintptr_t>(data) % size == 0;
}
template <int N>
__device__ bool in_packs(const Slot& slot, DType lane) {
    return in_packs<N>(slot.param, slot.param_dtype) && in_packs<N>(slot.grad, slot.grad_dtype) &&
           in_packs<N>(slot.master, DType::f32) && in_packs<N>(slot.first, lane) &&
           in_packs<N>(slot.second, lane) && in_packs<N>(slot.second_max, lane);
}

template <class Rule>
__global__ void count_step(AXLE_TABLE(Slot) table, const typename Rule::Group* groups,
                           const StepScalars* scalars, typename Rule::Step* steps) {
    const auto row = static_cast<std::int32_t>(thread_in_grid());
    if (row >= table.rows || is_skipped(scalars)) return;
    const Slot& slot = table.row[row];
    steps[row] = Rule::step(slot, groups[slot.group], scalars);
}

template <class Lane, class Rule>
__global__ void __launch_bounds__(kThreads)
    update_chunk(AXLE_TABLE(Slot) table, const StepScalars* scalars,
                 const typename Rule::Step* steps) {
    if (is_skipped(scalars)) return;
    auto [row, from, to] = stretch_of(table, blockIdx.x);
    const Slot& slot = table.row[row];
    const typename Rule::template Update<Lane> update(slot, steps[row]);
    constexpr int kN = kPack<Lane>;
    if (in_packs<kN>(slot, dtype_of<Lane>)) {
        const std::int64_t end = to - (to - from) % kN;
        update_elements<Lane, kN>(slot, update, from, end);
        from = end;
    }
    update_elements<Lane, 1>(slot, update, from, to);
}

// Of those slots that are computed in Lane.
template <class Lane, class Rule>
void update_lanes(Cuda& on, std::span<const Slot> slots, const typename Rule::Group* groups,
                  const StepScalars* scalars) {
    const auto wanted = [](const Slot& slot) {
        return (slot.param_dtype == DType::f64) == std::is_same_v<Lane, double>;
    };
    for_each_table(slots, kChunk, wanted, [&](const Table<Slot>& table) {
        DeviceScratch scratch(on);
        auto* const steps = scratch.take<typename Rule::Step>(table.rows);
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

void sgd(Cuda& on, std::span<const Slot> slots, const SgdGroup* groups,
         const StepScalars* scalars) {
    update_slots<Sgd>(on, slots, groups, scalars);
}

void adam(Cuda& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars) {
    update_slots<Adam>(on, slots, groups, scalars);
}

}  // namespace axle::inline v0::kernels
