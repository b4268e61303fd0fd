// Private to dist: one launch of commands, for supervise() and supervise_machines().
#pragma once

#include <vector>

#include "dist/environment/job_environment.h"
#include "dist/launch/job_launch.h"
#include "dist/launch/launch.h"

namespace axle::dist {

// Throws ValueError for invalid options.
void check_options(const SuperviseOptions& options);

// Starts all commands, waits until their processes have ended, and calls options.on_failure if the
// launch has failed. The environment of the processes contains `environment`, options.environment
// and the variables with the number of restarts. `machines` may be nullptr. Throws the errors of
// supervise().
JobLaunchResult launch_commands(const std::vector<Command>& commands,
                                const SuperviseOptions& options, int restart,
                                JobVariables environment, InterceptedSignals& signals,
                                Machines* machines);

}  // namespace axle::dist
