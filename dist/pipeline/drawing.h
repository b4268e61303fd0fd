// Draws the timeline of a schedule as an SVG image.
#pragma once

#include <string>
#include <vector>

#include "dist/pipeline/simulation.h"

namespace axle::dist {

// Returns an SVG image with one row of boxes for each rank of each schedule. The number in a box is
// the micro-batch, and the tone of its color shows the chunk. All rows have the same time scale.
// Unless costs.stage_factors is set, a stage takes 1 / chunks of the given times. Throws the errors
// of simulate().
std::string draw_schedules(const std::vector<Schedule>& schedules, ActionCosts costs = {});

}  // namespace axle::dist
