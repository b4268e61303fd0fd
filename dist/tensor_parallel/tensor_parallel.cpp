#include "dist/tensor_parallel/tensor_parallel.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "dist/group/shared_error.h"
#include "dist/tensor_parallel/divided_model.h"
#include "nn/layers/mixture.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"

namespace axle::dist {

void tensor_parallelize(nn::Module& model, const std::shared_ptr<ProcessGroup>& group,
                        const TensorParallelOptions& options) {
    std::optional<DividedModel> divided;
    const std::vector<Tree> all = gather_or_throw(*group, "tensor_parallelize", [&]() -> Tree {
        divided.emplace(model, group, options);
        return divided->description();
    });
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank].string() != all[0].string())
            throw ValueError(
                str("tensor_parallelize: all ranks must have the same plan and model: ranks 0 and ",
                    rank, " differ"));
    if (group->size() > 1) divided->apply();
}

namespace {

// Removes the policies of tensor parallel training from a module.
void remove_policies(nn::Module& module) {
    const auto remove = [](auto& policy, auto... types) {
        if ((... || (dynamic_cast<decltype(types)>(policy.get()) != nullptr))) policy = nullptr;
    };
    constexpr RandomPart kWhole{};
    if (auto* const linear = dynamic_cast<nn::Linear*>(&module))
        remove(linear->policy, static_cast<ColumnPolicy*>(nullptr),
               static_cast<RowPolicy*>(nullptr));
    if (auto* const table = dynamic_cast<nn::Embedding*>(&module))
        remove(table->policy, static_cast<VocabularyEmbedding*>(nullptr));
    if (auto* const head = dynamic_cast<nn::LanguageHead*>(&module))
        remove(head->head_policy, static_cast<VocabularyHead*>(nullptr));
    if (auto* const stack = dynamic_cast<nn::BlockStack*>(&module))
        remove(stack->stack_policy, static_cast<SequenceBlocks*>(nullptr));
    if (auto* const norm = dynamic_cast<nn::LayerNorm*>(&module))
        remove(norm->policy, static_cast<SequenceNorm*>(nullptr));
    if (auto* const norm = dynamic_cast<nn::RMSNorm*>(&module))
        remove(norm->policy, static_cast<SequenceNorm*>(nullptr));
    if (auto* const dropout = dynamic_cast<nn::Dropout*>(&module)) dropout->random_part = kWhole;
    if (auto* const attention = dynamic_cast<nn::GptAttention*>(&module))
        attention->random_part = kWhole;
    if (auto* const attention = dynamic_cast<nn::LlamaAttention*>(&module))
        attention->random_part = kWhole;
    if (auto* const attention = dynamic_cast<nn::BertSelfAttention*>(&module))
        attention->random_part = kWhole;
}

}  // namespace

void join_slices(nn::Module& model) {
    const std::vector<Tensor> parameters = model.parameters();
    std::vector<nn::MixtureOfExperts*> divided_mixtures;
    for (const auto& [name, module] : model.named_modules())
        if (auto* const mixture = dynamic_cast<nn::MixtureOfExperts*>(module);
            mixture != nullptr && mixture->policy != nullptr &&
            std::ranges::any_of(mixture->parameters(), [](const Tensor& parameter) {
                return autograd::slice_of(parameter) != nullptr;
            }))
            divided_mixtures.push_back(mixture);
    bool is_divided = false;
    for (const Tensor& parameter : parameters) {
        const auto slice = autograd::slice_of(parameter);
        if (slice == nullptr) continue;
        if (autograd::is_sharded(parameter))
            throw UsageError(
                "join_slices: the model is sharded over processes; call unshard() "
                "first");
        is_divided = true;
        autograd::join_slice(parameter);
    }
    if (!is_divided) return;
    for (const auto& [name, module] : model.named_modules()) remove_policies(*module);
    for (nn::MixtureOfExperts* const mixture : divided_mixtures) mixture->policy = nullptr;
}

}  // namespace axle::dist
