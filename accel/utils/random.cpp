#include "accel/utils/random.h"

#include <algorithm>

#include "accel/process/partial_state.h"
#include "core/files/file.h"
#include "core/random.h"
#include "core/system/numerics.h"
#include "dist/environment/environment.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

// Convert between a 64-bit unsigned value and the signed integer of a Tree.
std::int64_t bits(std::uint64_t value) { return static_cast<std::int64_t>(value); }
std::uint64_t from_bits(const Tree& value) { return static_cast<std::uint64_t>(value.integer()); }

}  // namespace

RngType rng_type(std::string_view name) {
    if (name == "torch") return RngType::torch;
    if (name == "cuda") return RngType::cuda;
    if (name == "generator") return RngType::generator;
    throw ValueError(str("rng_types: must be torch, cuda or generator: ", in_quotes(name)));
}

void set_seed(std::uint64_t seed, SetSeedOptions options) {
    if (options.device_specific) {
        const auto state = PartialState::current();
        // Without a PartialState, the rank is read from the launcher's environment.
        const int index = state ? state->process_index() : dist::read_environment().rank;
        seed += static_cast<std::uint64_t>(index);
    }
    manual_seed(seed);
    if (options.deterministic) use_deterministic_algorithms(true);
}

void synchronize_rng_state(dist::ProcessGroup& group, RngType type, data::Generator* generator) {
    if (group.size() == 1) return;
    if (type == RngType::generator) {
        if (generator == nullptr) return;
        generator->manual_seed(from_bits(group.broadcast_object(bits(generator->initial_seed()))));
        return;
    }
    const GeneratorState own = generator_state();
    const Tree first = group.broadcast_object(Tree::list({bits(own.seed), bits(own.offset)}));
    set_generator_state({from_bits(first[0]), from_bits(first[1])});
}

void synchronize_rng_states(dist::ProcessGroup& group, const std::vector<RngType>& types,
                            data::Generator* generator) {
    std::vector<RngType> once;
    for (const RngType type : types) {
        const RngType named = type == RngType::cuda ? RngType::torch : type;
        if (std::find(once.begin(), once.end(), named) != once.end()) continue;
        once.push_back(named);
        synchronize_rng_state(group, named, generator);
    }
}

}  // namespace axle::accel
