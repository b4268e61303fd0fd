// Tests the output_dtype of the mixed precision policy of FSDP.
#include <optional>
#include <string>
#include <vector>

#include "core/autograd/local_part.h"
#include "gtest/gtest.h"
#include "tests/accel/prepare/sharded_run.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::MixedPrecisionPolicy;
using tests::at;
using tests::Gpt64;
using tests::Group;

// The outputs of a sharded model, and the gradient of a parameter on this rank.
struct Outputs {
    Tensor logits, gradient;
};

// Returns the outputs of an f32 model whose parameters are gathered in bf16, and the gradient of
// this rank's part of the position embeddings.
Outputs outputs_of(nn::Gpt& model, const Group& group, const std::string& mixed_precision,
                   std::optional<DType> output_dtype, bool to_f32) {
    accel::FullyShardedDataParallelPlugin plugin{
        .fsdp_version = 2,
        .mixed_precision_policy = MixedPrecisionPolicy{
            .param_dtype = bf16, .reduce_dtype = f32, .output_dtype = output_dtype}};
    accel::Accelerator accelerator(tests::on_group(group, {.mixed_precision = mixed_precision,
                                                           .fsdp_plugin = plugin,
                                                           .convert_outputs_to_fp32 = to_f32}));
    accelerator.prepare(model);
    const auto [ids, labels] = tests::batch_of(0);
    const Tensor logits = model(tests::part(ids, *group));
    accelerator.backward(mean(logits.to(f32) * logits.to(f32)));
    return {logits.detach(), autograd::local_part(model.transformer.wpe.weight).grad()};
}

// Covers 14.mixed_precision_policy.
TEST(OutputDtype, ConvertsModelOutputsIfItDiffersFromParamDtype) {
    nn::Gpt initial = Gpt64().make();
    initial.to(f32);
    for (const char* mixed_precision : {"no", "bf16"}) {
        SCOPED_TRACE(mixed_precision);
        const auto run = [&](std::optional<DType> output_dtype, bool to_f32) {
            auto models = tests::clones_of(initial, 2);
            std::vector<Outputs> outputs(2);
            tests::on_ranks(2, [&](const Group& group) {
                outputs[at(group)] =
                    outputs_of(models[at(group)], group, mixed_precision, output_dtype, to_f32);
            });
            return outputs;
        };
        const auto in_bf16 = run(bf16, false);
        for (const bool to_f32 : {false, true})
            for (const DType dtype : {f32, f16}) {
                SCOPED_TRACE(str(dtype, ", convert_outputs_to_fp32 ", to_f32));
                const auto converted = run(dtype, to_f32);
                for (std::size_t rank = 0; rank < 2; ++rank) {
                    ASSERT_EQ(in_bf16[rank].logits.dtype(), bf16);
                    tests::expect_same_bits(converted[rank].logits, in_bf16[rank].logits.to(dtype));
                    tests::expect_close(converted[rank].gradient, in_bf16[rank].gradient, 1e-2);
                }
            }
    }
}

}  // namespace
}  // namespace axle
