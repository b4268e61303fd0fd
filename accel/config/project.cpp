#include "accel/config/project.h"

#include "accel/config/resolve_options.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

// Sets a field of the project configuration, if it is empty, from the AcceleratorOptions field of
// the same name. Throws UsageError if both are set and differ.
void merge(std::string& field, const std::string& other, const char* name) {
    if (!field.empty() && !other.empty() && field != other)
        throw UsageError(str("Accelerator: ", name, " and project_config.", name,
                             " must be equal: '", other, "', '", field,
                             "'; give only one of them"));
    if (field.empty()) field = other;
}

}  // namespace

ProjectConfiguration project(const AcceleratorOptions& options) {
    ProjectConfiguration project = options.project_config;
    merge(project.project_dir, options.project_dir, "project_dir");
    merge(project.logging_dir, options.logging_dir, "logging_dir");
    if (project.logging_dir.empty()) project.logging_dir = project.project_dir;
    if (project.automatic_checkpoint_naming && project.project_dir.empty())
        throw ValueError(
            "Accelerator: automatic_checkpoint_naming needs project_dir, the parent folder of the "
            "checkpoints; set project_dir");
    if (project.total_limit && *project.total_limit < 1)
        throw ValueError(str("Accelerator: project_config.total_limit must be at least 1: ",
                             *project.total_limit));
    if (project.best_limit && *project.best_limit < 0)
        throw ValueError(str("Accelerator: project_config.best_limit must not be negative: ",
                             *project.best_limit));
    if (project.iteration < 0)
        throw ValueError(
            str("Accelerator: project_config.iteration must not be negative: ", project.iteration));
    return project;
}

}  // namespace axle::accel
