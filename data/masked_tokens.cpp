#include "data/masked_tokens.h"

#include <utility>

#include "core/ops.h"
#include "data/transforms.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr const char* kMasking = "MaskedTokensDataset";
constexpr std::int64_t kIgnoredLabel = -100;

bool is_probability(double p) { return p >= 0 && p <= 1; }

// Throws DTypeError or ShapeError unless a tensor is i64 [T].
void check_tokens(const char* name, const Tensor& t) {
    if (t.dtype() != i64)
        throw DTypeError(str(kMasking, ": '", name, "' must be i64: ", t.dtype()));
    if (t.dim() != 1)
        throw ShapeError(str(kMasking, ": '", name, "' must have one dimension: ", t.shape()));
}

}  // namespace

MaskedTokensDataset::MaskedTokensDataset(std::shared_ptr<const Dataset> dataset,
                                         const MaskedTokensOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
    if (!dataset_) throw UsageError(str(kMasking, ": the dataset must not be null"));
    if (options.vocab_size < 1 || options.vocab_size >= std::int64_t{1} << 31)
        throw ValueError(str(kMasking, ": vocab_size must be in [1, 2^31): ", options.vocab_size));
    if (options.mask_token_id < 0 || options.mask_token_id >= options.vocab_size)
        throw ValueError(str(kMasking, ": mask_token_id must be in [0, ", options.vocab_size,
                             "): ", options.mask_token_id));
    if (!is_probability(options.mlm_probability))
        throw ValueError(
            str(kMasking, ": mlm_probability must be in [0, 1]: ", options.mlm_probability));
    if (!is_probability(options.mask_replace_prob) ||
        !is_probability(options.random_replace_prob) ||
        options.mask_replace_prob + options.random_replace_prob > 1)
        throw ValueError(str(kMasking,
                             ": mask_replace_prob and random_replace_prob must be in [0, 1], and "
                             "their sum at most 1: ",
                             options.mask_replace_prob, " and ", options.random_replace_prob));
}

Tree MaskedTokensDataset::get(std::int64_t index) const {
    Tree sample = dataset_->get(index);
    const Tree* const found = sample.is_map() ? sample.find("input_ids") : nullptr;
    if (found == nullptr || !found->is_tensor())
        throw ValueError(str(kMasking, ": a sample must be a map with the tensor 'input_ids'"));
    const Tensor& given = found->tensor();
    check_tokens("input_ids", given);
    Tensor ids = given.clone();
    Tensor labels = full(ids.shape(), kIgnoredLabel, {.dtype = i64});
    Tensor special = zeros(ids.shape(), {.dtype = i64});
    if (const Tree* const mask = sample.find("special_tokens_mask"); mask != nullptr) {
        special = mask->tensor().contiguous();
        check_tokens("special_tokens_mask", special);
        if (special.numel() != ids.numel())
            throw ShapeError(str(kMasking,
                                 ": 'special_tokens_mask' must have the size of "
                                 "'input_ids', ",
                                 ids.numel(), ": ", special.numel()));
    }
    SampleRandom random(SampleRandom::epoch_key(options_.seed, epoch_), index);
    auto* const id = ids.data<std::int64_t>();
    auto* const label = labels.data<std::int64_t>();
    const auto* const is_special = special.data<std::int64_t>();
    for (std::int64_t i = 0; i < ids.numel(); ++i) {
        if (is_special[i] != 0 || !(random.uniform() < options_.mlm_probability)) continue;
        label[i] = id[i];
        const double action = random.uniform();
        if (action < options_.mask_replace_prob)
            id[i] = options_.mask_token_id;
        else if (action < options_.mask_replace_prob + options_.random_replace_prob)
            id[i] = random.below(options_.vocab_size);
    }
    Tree result = Tree::map();
    for (const auto& [name, value] : sample.entries())
        if (name != "input_ids" && name != "labels" && name != "special_tokens_mask")
            result.set(name, value);
    result.set("input_ids", ids);
    result.set("labels", labels);
    return result;
}

std::shared_ptr<const Dataset> MaskedTokensDataset::in_epoch(std::int64_t epoch) const {
    auto copy = std::make_shared<MaskedTokensDataset>(*this);
    if (!options_.is_constant) copy->epoch_ = epoch;
    if (auto dataset = dataset_->in_epoch(epoch)) copy->dataset_ = std::move(dataset);
    return copy;
}

}  // namespace axle::data
