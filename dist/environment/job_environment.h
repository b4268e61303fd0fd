// Private to dist: the environment of a job's processes.
#pragma once

#include <map>
#include <string>

namespace axle::inline v0::dist {

using JobVariables = std::map<std::string, std::string>;

// ValueError for what can't be passed on.
void check_variables(const JobVariables& variables);

// Which attempt this is, for those who resume.
void add_restarts(JobVariables& variables, int attempt, int max_restarts);

}  // namespace axle::inline v0::dist
