#include "dist/group/mesh.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops.h"
#include "kernels/error.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using dist::DeviceMesh;
using Group = std::shared_ptr<dist::ProcessGroup>;

TEST(DeviceMesh, OrdersRanksRowMajor) {
    tests::on_ranks(4, [](const Group& group) {
        const DeviceMesh mesh(group, {{"dp", 2}, {"tp", 2}});
        const int rank = group->rank();
        EXPECT_EQ(mesh.coordinates(), (std::vector<int>{rank / 2, rank % 2}));
        EXPECT_EQ(mesh.coordinate("tp"), rank % 2);
        EXPECT_EQ(mesh.size("dp"), 2);
        EXPECT_EQ(mesh.get_group("tp")->global_ranks(),
                  (std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}));
        EXPECT_EQ(mesh.get_group("dp")->global_ranks(), (std::vector<int>{rank % 2, rank % 2 + 2}));
        EXPECT_EQ(mesh.get_group("dp")->rank(), mesh.coordinate("dp"));

        const Tensor x = full({1}, rank, {f32});
        mesh.get_group("tp")->all_reduce(x);
        EXPECT_EQ(x.item(), rank / 2 * 4 + 1);
    });
}

TEST(DeviceMesh, FlattensSeveralDimensionsIntoOne) {
    tests::on_ranks(4, [](const Group& group) {
        const DeviceMesh mesh(group, {{"pp", 1}, {"dp", 2}, {"cp", 2}});
        EXPECT_EQ(mesh.flatten({"dp", "cp"})->size(), 4);
        EXPECT_EQ(mesh.flatten({"pp", "cp"})->global_ranks(), mesh.get_group("cp")->global_ranks());
        EXPECT_EQ(mesh.flatten({})->size(), 1);
    });
}

TEST(DeviceMesh, HasGroupsOfSizeOneOnOneProcess) {
    const DeviceMesh mesh(dist::ProcessGroup::alone(), {{"dp", 1}, {"tp", 1}});
    EXPECT_EQ(mesh.get_group("tp")->size(), 1);
    EXPECT_EQ(mesh.coordinate("dp"), 0);
}

TEST(DeviceMesh, RejectsInvalidSizesAndNames) {
    const Group group = dist::ProcessGroup::alone();
    EXPECT_THROW(DeviceMesh(group, {{"dp", 2}}), ValueError);
    EXPECT_THROW(DeviceMesh(group, {{"dp", 0}}), ValueError);
    EXPECT_THROW(DeviceMesh(group, {{"", 1}}), ValueError);
    EXPECT_THROW(DeviceMesh(group, {{"dp", 1}, {"dp", 1}}), ValueError);
    const DeviceMesh mesh(group, {{"dp", 1}});
    EXPECT_THROW(mesh.get_group("tp"), ValueError);
    EXPECT_THROW(mesh.flatten({"dp", "dp"}), ValueError);
}

TEST(DeviceMesh, ThrowsCommErrorIfRanksPassDifferentDimensions) {
    const std::vector<std::string> errors = tests::run_ranks(2, [](const Group& group) {
        const DeviceMesh mesh(group, {{group->rank() == 0 ? "dp" : "tp", 2}});
    });
    EXPECT_THAT(errors[1], testing::HasSubstr("'tp' 2"));
}

}  // namespace
}  // namespace axle
