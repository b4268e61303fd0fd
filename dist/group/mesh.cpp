#include "dist/group/mesh.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

std::string text_of(const std::vector<DeviceMesh::Dimension>& dimensions) {
    if (dimensions.empty()) return "no dimensions";
    std::string text;
    for (const auto& [name, size] : dimensions)
        text += str(text.empty() ? "" : ", ", in_quotes(name), ' ', size);
    return text;
}

void check(const ProcessGroup& group, const std::vector<DeviceMesh::Dimension>& dimensions) {
    std::set<std::string> names;
    std::int64_t product = 1;
    for (const auto& [name, size] : dimensions) {
        if (name.empty())
            throw ValueError(str("DeviceMesh: a dimension has no name: ", text_of(dimensions)));
        if (!names.insert(name).second)
            throw ValueError(str("DeviceMesh: duplicate dimension name: ", in_quotes(name)));
        if (size < 1 || size > group.size())
            throw ValueError(str("DeviceMesh: each size must be from 1 to ", group.size(),
                                 " (the number of processes): ", text_of(dimensions)));
        product *= size;
        if (product > group.size()) break;
    }
    if (product != group.size())
        throw ValueError(str("DeviceMesh: the product of the sizes must be ", group.size(),
                             " (the number of processes): ", text_of(dimensions)));
}

}  // namespace

DeviceMesh::DeviceMesh(std::shared_ptr<ProcessGroup> group, std::vector<Dimension> dimensions)
    : group_(std::move(group)),
      dimensions_(std::move(dimensions)),
      coordinates_(dimensions_.size()) {
    check(*group_, dimensions_);
    const std::string mine = text_of(dimensions_);
    if (const std::string roots = group_->broadcast_object(mine).string(); roots != mine)
        throw CommError(str("DeviceMesh: all ranks must pass the same dimensions: rank 0 has ",
                            roots, ", rank ", group_->rank(), " has ", mine));
    int rest = group_->rank();
    for (std::size_t d = dimensions_.size(); d-- > 0; rest /= dimensions_[d].size)
        coordinates_[d] = rest % dimensions_[d].size;
    for (const auto& [name, size] : dimensions_) groups_.push_back(flatten({name}));
}

std::shared_ptr<ProcessGroup> DeviceMesh::flatten(const std::vector<std::string>& names) const {
    std::set<std::size_t> within;
    for (const std::string& name : names)
        if (!within.insert(find(name)).second)
            throw ValueError(str("DeviceMesh: duplicate dimension name: ", in_quotes(name)));
    int color = 0;
    for (std::size_t d = 0; d < dimensions_.size(); ++d)
        if (!within.contains(d)) color = color * dimensions_[d].size + coordinates_[d];
    return group_->split(color);
}

void DeviceMesh::add_flattened(const std::string& name, const std::vector<std::string>& names) {
    if (has(name) || flattened_.contains(name))
        throw ValueError(str("DeviceMesh: duplicate dimension name: ", in_quotes(name)));
    flattened_[name] = flatten(names);
}

std::shared_ptr<ProcessGroup> DeviceMesh::get_group(const std::string& name) const {
    const auto flattened = flattened_.find(name);
    return flattened != flattened_.end() ? flattened->second : groups_[find(name)];
}

bool DeviceMesh::has(const std::string& name) const {
    return std::ranges::any_of(dimensions_, [&](const Dimension& d) { return d.name == name; });
}

std::size_t DeviceMesh::find(const std::string& name) const {
    for (std::size_t d = 0; d < dimensions_.size(); ++d)
        if (dimensions_[d].name == name) return d;
    throw ValueError(str("DeviceMesh: unknown dimension ", in_quotes(name), ": the mesh has ",
                         text_of(dimensions_)));
}

}  // namespace axle::dist
