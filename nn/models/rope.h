// Scaled rotary positions, for sequences that are longer than in pretraining. As in Transformers
// (rope_scaling), the type of scaling defines how the frequencies of the rotations change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace axle::nn {

struct RopeScaling {
    // "linear" divides all frequencies by `factor`. "dynamic" increases the base for sequences that
    // are longer than max_position_embeddings of the model (NTK scaling). "llama3" divides low
    // frequencies by `factor`, keeps high frequencies and interpolates between them.
    std::string type;
    double factor = 1;
    // Only for llama3. A frequency is low if its wavelength exceeds
    // original_max_position_embeddings / low_freq_factor tokens. It is high if its wavelength is
    // below original_max_position_embeddings / high_freq_factor tokens.
    double low_freq_factor = 1;
    double high_freq_factor = 4;
    std::int64_t original_max_position_embeddings = 8192;

    // Throws ValueError with the name of the first invalid field; the message begins with `who`.
    void validate(const char* who) const;
    // Returns the angles per position [head_size / 2], in radians, for sequences of `length`
    // tokens. `max_position_embeddings` is the field of the model, and `base` its rope_theta.
    std::vector<double> frequencies(double base, std::int64_t head_size, std::int64_t length,
                                    std::int64_t max_position_embeddings) const;
};

}  // namespace axle::nn
