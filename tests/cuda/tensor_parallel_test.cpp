// Tests the errors of models whose tensors several ranks divide, on GPUs.
#include "dist/tensor_parallel/tensor_parallel.h"

#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/tensor_parallel/divided_models.h"

namespace axle::tests {
namespace {

class TensorParallelOnGpu : public ProcessGroupOnGpu {};
INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallelOnGpu, testing::Values(2));

// Returns the text of the IndexError of f(). On a GPU, waiting for the device may throw it.
template <class F>
std::string index_error_of(F&& f, Device gpu) {
    try {
        f();
        cuda::synchronize(gpu.index);
    } catch (const IndexError& error) {
        return error.what();
    }
    return "no error";
}

// Without the check, an id that is not in the slice of any rank would have a row of zeros and no
// gradient.
TEST_P(TensorParallelOnGpu, ReportsIdsAndTargetsThatAreNotInTheVocabulary) {
    const int ranks = GetParam();
    auto models = clones_of(small_gpt(f32), 2 * ranks);
    const Tensor valid = zeros({1, 4}, {.dtype = i64});
    const auto errors = on_groups([&](const Group& group, Device gpu) {
        nn::Gpt& model = models[static_cast<std::size_t>(group->rank())];
        nn::Gpt& undivided = models[static_cast<std::size_t>(group->rank() + ranks)];
        model.to(gpu), undivided.to(gpu);
        dist::tensor_parallelize(model, group);
        for (const std::int64_t bad : {kVocabularySize, std::int64_t{-1}}) {
            const Tensor ids = valid.to(gpu), wrong = full({1, 4}, bad, {.dtype = i64}).to(gpu);
            for (const auto& [x, y] : {std::pair{wrong, ids}, {ids, wrong}}) {
                const auto loss_of = [&, &x = x, &y = y](nn::Gpt& gpt) {
                    return index_error_of([&] { gpt.loss(x, y); }, gpu);
                };
                const std::string expected = loss_of(undivided);
                EXPECT_NE(expected, "no error");
                EXPECT_EQ(loss_of(model), expected);
            }
        }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace axle::tests
