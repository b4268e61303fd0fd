// Tests the state of an Accelerator, and its distributed type.
#include <memory>
#include <sstream>
#include <string>

#include "accel/accelerator.h"
#include "gtest/gtest.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using tests::on_ranks;
using Group = std::shared_ptr<dist::ProcessGroup>;

// Covers 2.state, 29.Accelerator.state, 2.distributed_type, 2.mixed_precision, 6.PartialState,
// 6.AcceleratorState, 6.Backend.
TEST(AcceleratorState, PrintsEnvironmentProcessesDeviceAndPrecision) {
    const auto text = [](const auto& state) {
        std::ostringstream out;
        out << state;
        return out.str();
    };
    const Accelerator alone({.mixed_precision = "bf16", .cpu = true});
    EXPECT_EQ(text(alone.state()),
              "Distributed environment: NO\nNum processes: 1\nProcess index: 0\n"
              "Local process index: 0\nDevice: cpu\n\nMixed precision type: bf16\n");
    EXPECT_EQ(text(PartialState({.cpu = true})),
              "Distributed environment: NO\nNum processes: 1\nProcess index: 0\n"
              "Local process index: 0\nDevice: cpu\n");
    on_ranks(2, [&](const Group& group) {
        const Accelerator one({.cpu = true, .process_group = group});
        EXPECT_EQ(text(one.state()),
                  str("Distributed environment: MULTI_CPU  Backend: tcp\nNum processes: 2\n"
                      "Process index: ",
                      group->rank(), "\nLocal process index: ", group->rank(),
                      "\nDevice: cpu\n\nMixed precision type: no\n"));
        EXPECT_EQ(one.distributed_type(), accel::DistributedType::multi_cpu);
        EXPECT_FALSE(one.multi_device());
    });
}

// On one process, a plugin for FSDP or Megatron does not determine the distributed type.
// Covers 2.is_fsdp2, 2.distributed_type.
TEST(AcceleratorState, HasTheDistributedTypeOfThePluginOnSeveralProcessesOrWithDeepSpeed) {
    using accel::DistributedType;
    const auto fsdp = [](int version) {
        return accel::FullyShardedDataParallelPlugin{.fsdp_version = version};
    };
    {
        const Accelerator alone({.cpu = true, .fsdp_plugin = fsdp(2)});
        EXPECT_EQ(alone.distributed_type(), DistributedType::no);
        EXPECT_FALSE(alone.is_fsdp2());
        const Accelerator deepspeed({.cpu = true, .deepspeed_plugin = accel::DeepSpeedPlugin()});
        EXPECT_EQ(deepspeed.distributed_type(), DistributedType::deepspeed);
    }
    on_ranks(2, [&](const Group& group) {
        for (const int version : {1, 2}) {
            const Accelerator one(
                {.cpu = true, .fsdp_plugin = fsdp(version), .process_group = group});
            EXPECT_EQ(one.distributed_type(), DistributedType::fsdp);
            EXPECT_EQ(one.is_fsdp2(), version == 2);
            std::ostringstream out;
            out << one.state();
            EXPECT_EQ(out.str().substr(0, out.str().find("  ")), "Distributed environment: FSDP");
        }
        const Accelerator megatron({.cpu = true,
                                    .megatron_lm_plugin = accel::MegatronLMPlugin{.pp_degree = 2},
                                    .process_group = group});
        EXPECT_EQ(megatron.distributed_type(), DistributedType::megatron_lm);
        EXPECT_FALSE(megatron.is_fsdp2());
        EXPECT_STREQ(accel::name_of(megatron.distributed_type()), "MEGATRON_LM");
        const Accelerator plain({.cpu = true, .process_group = group});
        EXPECT_FALSE(plain.is_fsdp2());
    });
}

}  // namespace
}  // namespace axle
