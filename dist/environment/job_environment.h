// Private to dist: the environment variables of a job's processes.
#pragma once

#include <map>
#include <string>

namespace axle::dist {

using JobVariables = std::map<std::string, std::string>;

// Throws ValueError if a name or a value is not valid for an environment variable.
void check_variables(const JobVariables& variables);

// Sets the variables with the restart count, which programs read to resume from a checkpoint.
void add_restarts(JobVariables& variables, int attempt, int max_restarts);

}  // namespace axle::dist
