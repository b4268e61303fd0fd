// Private to dist: the environment variables that a launcher sets for the processes of a job.
#pragma once

#include <map>
#include <string>

namespace axle::dist {

using JobVariables = std::map<std::string, std::string>;

// Throws ValueError if a name is empty or contains '=', or if a name or a value contains a line end
// or a zero byte.
void check_variables(const JobVariables& variables);

// Sets AXLE_RESTART_COUNT and TORCHELASTIC_RESTART_COUNT to `attempt`, the number of earlier
// launches, and TORCHELASTIC_MAX_RESTARTS to `max_restarts`.
void add_restarts(JobVariables& variables, int attempt, int max_restarts);

}  // namespace axle::dist
