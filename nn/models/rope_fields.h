// Private to nn/models: the fields of config.json about rotary positions.
#pragma once

#include <optional>

#include "nn/models/pretrained.h"
#include "nn/models/rope.h"

namespace axle::nn {

// Reads the base of the rotary positions and their scaling. Versions of transformers before 5 write
// rope_theta and, for scaled positions, rope_scaling. Later versions write both into
// rope_parameters. Throws ValueError for invalid fields and unsupported types of scaling.
void read_rope(const ConfigFields& fields, double& theta, std::optional<RopeScaling>& scaling);
// Adds rope_theta, rope_parameters and, if the positions are scaled, rope_scaling to the map
// `fields`.
void write_rope(Tree& fields, double theta, const std::optional<RopeScaling>& scaling);

}  // namespace axle::nn
