// What options say about a run's folders.
#include "accel/state/project.h"

#include "accel/config/resolve_options.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

void take(std::string& place, const std::string& other, const char* name) {
    if (!place.empty() && !other.empty() && place != other)
        throw UsageError(str("Accelerator: ", name, " is '", other, "' and project_config.", name,
                             " is '", place, "'; say it in one place"));
    if (place.empty()) place = other;
}

}  // namespace

ProjectConfiguration project(const AcceleratorOptions& options) {
    ProjectConfiguration project = options.project_config;
    take(project.project_dir, options.project_dir, "project_dir");
    take(project.logging_dir, options.logging_dir, "logging_dir");
    if (project.logging_dir.empty()) project.logging_dir = project.project_dir;
    if (project.automatic_checkpoint_naming && project.project_dir.empty())
        throw ValueError(
            "Accelerator: automatic_checkpoint_naming needs a project_dir to put checkpoints into");
    if (project.total_limit && *project.total_limit < 1)
        throw ValueError(str("Accelerator: total_limit must be at least one checkpoint: ",
                             *project.total_limit));
    if (project.iteration < 0)
        throw ValueError(
            str("Accelerator: project_config.iteration is negative: ", project.iteration));
    return project;
}

}  // namespace axle::accel
