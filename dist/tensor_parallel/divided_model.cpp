#include "dist/tensor_parallel/divided_model.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "core/autograd/local_part.h"
#include "core/files/file.h"
#include "core/text/pattern.h"
#include "core/text/text.h"
#include "dist/tensor_parallel/slices.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"

namespace axle::dist {
namespace {

constexpr const char* kOp = "tensor_parallelize";
constexpr std::array kStyles = {"colwise",           "rowwise",           "colwise_rep",
                                "embedding_rowwise", "sequence_parallel", "replicate"};

[[noreturn]] void fail(const std::string& text) { throw ValueError(str(kOp, ": ", text)); }

std::string joined(const std::string& module, const char* name) {
    return module.empty() ? name : str(module, '.', name);
}

std::string parent_name(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? "" : name.substr(0, dot);
}

// Returns a function that decides whether a rule selects a name.
std::function<bool(const std::string&)> matcher(const std::string& pattern) {
    static constexpr std::string_view kRegex = "regex:";
    std::string text;
    if (pattern.starts_with(kRegex)) {
        text = pattern.substr(kRegex.size());
    } else {
        for (const char c : pattern) {
            if (c == '*')
                text += "[^.]+";
            else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_')
                text += c;
            else
                (text += '\\') += c;
        }
    }
    try {
        return [expression = Pattern(text)](const std::string& name) {
            return expression.matches(name);
        };
    } catch (const ValueError& error) {
        fail(str("the plan has an invalid regular expression ", in_quotes(printable(pattern)), ": ",
                 error.what()));
    }
}

void check_styles(const TensorParallelPlan& plan) {
    for (const TensorParallelRule& rule : plan) {
        if (std::ranges::find(kStyles, rule.style) == kStyles.end()) {
            std::string known;
            for (const char* style : kStyles) known += (known.empty() ? "" : ", ") + str(style);
            fail(str("unknown style ", in_quotes(printable(rule.style)), " of ",
                     in_quotes(printable(rule.modules)), "; the styles are ", known));
        }
        if (rule.segments < 1)
            fail(str("segments must be positive: ", rule.segments, " of ",
                     in_quotes(printable(rule.modules))));
    }
}

template <class T>
T& as(const std::string& name, nn::Module* module, const char* style, const char* needed) {
    auto* const layer = dynamic_cast<T*>(module);
    if (layer == nullptr)
        fail(str("the style ", style, " needs ", needed, ": ", in_quotes(printable(name)),
                 " has another type"));
    return *layer;
}

template <class Policy>
void check_free(const std::string& name, const std::shared_ptr<Policy>& policy) {
    if (policy != nullptr)
        throw UsageError(
            str(kOp, ": ", in_quotes(printable(name)),
                " already has a policy, which can't be combined with tensor parallel training"));
}

}  // namespace

DividedModel::DividedModel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                           const TensorParallelOptions& options)
    : model_(model),
      division_{std::move(group), options.sequence_parallel},
      syncs_(options.sync_module_states) {
    const TensorParallelPlan plan =
        options.plan.empty() ? tensor_parallel_plan(model) : options.plan;
    if (plan.empty())
        fail(
            "the model has no plan; set TensorParallelOptions::plan, or use Gpt, Llama or a BERT "
            "model");
    check_styles(plan);
    for (const auto& [name, module] : model.named_modules()) modules_.emplace(name, module);
    const std::vector<Target> all = targets();
    std::set<std::string> seen;
    for (const TensorParallelRule& rule : plan) {
        const auto selects = matcher(rule.modules);
        bool matches = false;
        for (const Target& target : all) {
            if (!selects(target.name)) continue;
            matches = true;
            if (seen.insert(target.name).second) add(target, rule);
        }
        if (!matches)
            fail(str("the plan's rule ", in_quotes(printable(rule.modules)),
                     " selects no module of the model"));
    }
    check_tied();
    check_sequence();
    for (const auto& [name, parameter] : model.named_parameters())
        description_ += str(name, ' ', parameter.shape(), ' ', parameter.dtype(),
                            parameter.device().is_meta() ? " without memory" : "", '\n');
    description_ +=
        str("sync_module_states ", syncs_, ", sequence_parallel ", division_.by_sequence, '\n');
}

std::vector<DividedModel::Target> DividedModel::targets() {
    std::vector<Target> all;
    for (const auto& [name, module] : model_.named_modules()) {
        all.push_back({name, module});
        if (auto* const head = dynamic_cast<nn::LanguageHead*>(module))
            all.push_back({joined(name, head->head_name()), module, head});
    }
    return all;
}

void DividedModel::add(const Target& target, const TensorParallelRule& rule) {
    if (rule.style == "replicate") return;
    if (rule.style == "sequence_parallel") return add_sequence_parallel(target);
    description_ += str(target.name, ": ", rule.style, ' ', rule.segments, '\n');
    if (target.head != nullptr) {
        if (rule.style != "colwise_rep")
            fail(str("the style of ", in_quotes(target.name), ", the product with the vocabulary, ",
                     "must be colwise_rep: ", rule.style));
        return add_head(target);
    }
    if (rule.style == "embedding_rowwise") return add_embedding(target);
    rule.style == "rowwise" ? add_row(target) : add_column(target, rule);
}

void DividedModel::add_column(const Target& target, const TensorParallelRule& rule) {
    auto& layer = as<nn::Linear>(target.name, target.module, rule.style.c_str(), "a Linear");
    check_free(target.name, layer.policy);
    const std::int64_t parts = parts_of(target, layer, rule.segments);
    const int dim = layer.options().transposed ? 1 : 0;
    slice(target.name + ".weight", layer.weight, dim, rule.segments, parts);
    if (layer.bias.defined()) slice(target.name + ".bias", layer.bias, 0, rule.segments, parts);
    handled_.push_back(&layer);
    actions_.push_back([this, &layer, rule, parts, input = input_of(target.name)] {
        layer.policy = std::make_shared<ColumnPolicy>(
            division_, input,
            ColumnPolicy::Options{.gathers_output = rule.style == "colwise_rep",
                                  .segments = rule.segments,
                                  .copies = copies_of(parts)});
    });
}

void DividedModel::add_row(const Target& target) {
    auto& layer = as<nn::Linear>(target.name, target.module, "rowwise", "a Linear");
    check_free(target.name, layer.policy);
    const int dim = layer.options().transposed ? 0 : 1;
    if (layer.weight.size(dim) % size() != 0)
        fail(str("the ", layer.weight.size(dim), " input features of ", in_quotes(target.name),
                 " can't be divided among ", size(), " ranks"));
    slice(target.name + ".weight", layer.weight, dim, 1, size());
    handled_.push_back(&layer);
    actions_.push_back([this, &layer] { layer.policy = std::make_shared<RowPolicy>(division_); });
}

void DividedModel::add_embedding(const Target& target) {
    auto& layer =
        as<nn::Embedding>(target.name, target.module, "embedding_rowwise", "an Embedding");
    check_free(target.name, layer.policy);
    const nn::Module* const parent = parent_of(target.name);
    const auto* const gpt = dynamic_cast<const nn::GptTransformer*>(parent);
    const auto* const bert = dynamic_cast<const nn::BertEmbeddings*>(parent);
    if ((gpt != nullptr && &layer == &gpt->wpe) || (bert != nullptr && &layer != &bert->word))
        fail(str(in_quotes(target.name),
                 " can't be divided, because the model reads rows of the whole weight"));
    slice(target.name + ".weight", layer.weight, 0, 1, size(), true);
    handled_.push_back(&layer);
    actions_.push_back([this, &layer, rows = layer.weight.size(0)] {
        layer.policy = std::make_shared<VocabularyEmbedding>(division_.group, rows);
    });
}

void DividedModel::add_head(const Target& target) {
    nn::LanguageHead& head = *target.head;
    check_free(target.name, head.head_policy);
    slice(target.name + ".weight", head.head_weight(), 0, 1, size(), true);
    if (head.head_bias().defined())
        slice(target.name + ".bias", head.head_bias(), 0, 1, size(), true);
    handled_.push_back(&head);
    actions_.push_back([this, &head, rows = head.head_weight().size(0)] {
        head.head_policy = std::make_shared<VocabularyHead>(division_.group, rows);
    });
}

void DividedModel::add_sequence_parallel(const Target& target) {
    if (!division_.by_sequence) return;
    description_ += str(target.name, ": sequence_parallel\n");
    by_sequence_.insert(target.name);
    const auto& group = division_.group;
    const auto install_norm = [&](auto* norm) {
        if (norm == nullptr) return false;
        check_free(target.name, norm->policy);
        actions_.push_back([norm, group] { norm->policy = std::make_shared<SequenceNorm>(group); });
        return true;
    };
    if (install_norm(dynamic_cast<nn::LayerNorm*>(target.module)) ||
        install_norm(dynamic_cast<nn::RMSNorm*>(target.module)))
        return;
    if (auto* const dropout = dynamic_cast<nn::Dropout*>(target.module)) {
        actions_.push_back([dropout, group] {
            dropout->random_part = {1, group->rank(), group->size()};
        });
        return;
    }
    auto* const stack = dynamic_cast<nn::BlockStack*>(target.module);
    if (stack == nullptr)
        fail(
            str("the style sequence_parallel needs a LayerNorm, an RMSNorm, a Dropout or a stack "
                "of blocks: ",
                in_quotes(printable(target.name)), " has another type"));
    check_free(target.name, stack->stack_policy);
    stacks_.push_back(target.name);
    actions_.push_back(
        [stack, group] { stack->stack_policy = std::make_shared<SequenceBlocks>(group); });
}

nn::Module* DividedModel::parent_of(const std::string& name) const {
    if (name.empty()) return nullptr;
    const auto found = modules_.find(parent_name(name));
    return found == modules_.end() ? nullptr : found->second;
}

std::int64_t DividedModel::parts_of(const Target& target, const nn::Linear& layer,
                                    std::int64_t segments) const {
    const std::int64_t features = layer.weight.size(layer.options().transposed ? 1 : 0);
    const auto check_heads = [&](std::int64_t head_size) {
        const std::int64_t heads = features / segments / head_size;
        if (heads % size() != 0)
            fail(str("the ", heads, " attention heads of ", in_quotes(target.name),
                     " can't be divided among ", size(), " ranks"));
        return std::int64_t{size()};
    };
    nn::Module* const parent = parent_of(target.name);
    if (const auto* gpt = dynamic_cast<nn::GptAttention*>(parent)) {
        if (&layer == &gpt->c_attn && segments != 3)
            fail(str("the output of ", in_quotes(target.name),
                     " consists of queries, keys and values; set segments to 3: ", segments));
        if (&layer == &gpt->c_attn) return check_heads(gpt->head_size);
    }
    if (const auto* bert = dynamic_cast<nn::BertSelfAttention*>(parent))
        return check_heads(bert->head_size);
    if (const auto* llama = dynamic_cast<nn::LlamaAttention*>(parent)) {
        if (&layer == &llama->q_proj) return check_heads(llama->head_size);
        const std::int64_t heads = features / llama->head_size;
        if (heads % size() == 0) return size();
        if (heads > size() || size() % heads != 0)
            fail(str("the ", heads, " key-value heads of ", in_quotes(target.name),
                     " can neither be divided among nor copied to ", size(), " ranks"));
        return heads;
    }
    if (features % (segments * size()) != 0)
        fail(str("the ", features, " output features of ", in_quotes(target.name), ", in ",
                 segments, segments == 1 ? " segment" : " segments", ", can't be divided among ",
                 size(), " ranks"));
    return size();
}

std::shared_ptr<SharedInput> DividedModel::input_of(const std::string& name) {
    auto& input = inputs_[parent_name(name)];
    if (input == nullptr) input = std::make_shared<SharedInput>(division_);
    return input;
}

// Returns the ranks that have the same part, or nullptr if each rank has its own part.
std::shared_ptr<ProcessGroup> DividedModel::copies_of(std::int64_t parts) {
    if (parts == size()) return nullptr;
    auto& group = copies_[parts];
    if (group == nullptr) {
        const auto copies = size() / static_cast<int>(parts);
        group = division_.group->split(division_.group->rank() / copies);
    }
    return group;
}

void DividedModel::slice(const std::string& name, const Tensor& tensor, int dim,
                         std::int64_t segments, std::int64_t parts, bool pads) {
    const auto refuse = [&](const char* reason) {
        throw UsageError(str(kOp, ": ", printable(name), ' ', reason));
    };
    if (autograd::slice_of(tensor) != nullptr) refuse("is already divided");
    if (autograd::is_sharded(tensor))
        refuse("is sharded over processes; divide the model before it is sharded");
    if (autograd::has_gradient(tensor)) refuse("has a gradient; call zero_grad() first");
    const std::int64_t rows = tensor.size(dim);
    const std::int64_t padded = pads ? (rows + parts - 1) / parts * parts : rows;
    const std::int64_t part = division_.group->rank() * parts / size();
    const autograd::SliceLayout layout{tensor.shape(), dim, segments, padded, parts, part};
    const auto [known, is_new] = slices_.emplace(tensor.impl().get(), std::pair(tensor, layout));
    if (is_new) {
        order_.push_back(tensor.impl().get());
        return;
    }
    const autograd::SliceLayout& other = known->second.second;
    if (other.dim != dim || other.segments != segments || other.parts != parts)
        fail(str("the tied weight ", in_quotes(printable(name)),
                 " is divided in two different ways"));
}

// Throws ValueError if a module uses a divided weight, but no rule divides the module.
void DividedModel::check_tied() {
    const auto check = [&](const std::string& name, const void* module, const Tensor& weight) {
        if (weight.defined() && slices_.contains(weight.impl().get()) &&
            std::ranges::find(handled_, module) == handled_.end())
            fail(str("the weight of ", in_quotes(printable(name)),
                     " is tied to a divided weight, but the plan does not divide ",
                     in_quotes(printable(name))));
    };
    for (const Target& target : targets()) {
        if (target.head != nullptr)
            check(target.name, target.head, target.head->head_weight());
        else if (auto* const linear = dynamic_cast<nn::Linear*>(target.module))
            check(target.name, linear, linear->weight);
        else if (auto* const embedding = dynamic_cast<nn::Embedding*>(target.module))
            check(target.name, embedding, embedding->weight);
    }
}

// Throws ValueError if by_sequence is true but no rule divides activations along the sequence. Also
// throws it if a norm that gets parts of the sequence does not sum its gradients over the ranks.
void DividedModel::check_sequence() const {
    if (!division_.by_sequence) return;
    if (stacks_.empty())
        fail(
            "sequence_parallel needs a rule with the style sequence_parallel for the stack of "
            "blocks, and one for each norm in it");
    for (const auto& [name, module] : modules_) {
        if (dynamic_cast<nn::LayerNorm*>(module) == nullptr &&
            dynamic_cast<nn::RMSNorm*>(module) == nullptr)
            continue;
        for (const std::string& stack : stacks_)
            if ((stack.empty() || name.starts_with(stack + ".")) && !by_sequence_.contains(name))
                fail(str("the plan has no rule sequence_parallel for the norm ",
                         in_quotes(printable(name))));
    }
}

std::string DividedModel::description() const { return description_; }

void DividedModel::apply() {
    const auto& group = division_.group;
    if (syncs_) {
        std::set<const Impl*> sent;
        for (const auto& [name, tensor] : model_.state_dict({.keep_vars = true}))
            if (!tensor.device().is_meta() && sent.insert(tensor.impl().get()).second)
                group->broadcast(tensor.detach());
    }
    for (const auto& action : actions_) action();
    for (const Impl* const impl : order_) {
        const auto& [tensor, layout] = slices_.at(impl);
        autograd::set_slice(tensor, std::make_shared<GroupSlice>(layout, group));
    }
    // On each rank, attention computes a part of the heads. Its dropout therefore uses only the
    // random numbers of these heads.
    const RandomPart heads{1, group->rank(), group->size()};
    const auto is_divided = [](const nn::Linear& layer) {
        const auto* const policy = dynamic_cast<const ColumnPolicy*>(layer.policy.get());
        return policy != nullptr && !policy->gathers_output();
    };
    for (const auto& [name, module] : modules_) {
        if (auto* const gpt = dynamic_cast<nn::GptAttention*>(module);
            gpt != nullptr && is_divided(gpt->c_attn))
            gpt->random_part = heads;
        if (auto* const llama = dynamic_cast<nn::LlamaAttention*>(module);
            llama != nullptr && is_divided(llama->q_proj))
            llama->random_part = heads;
        if (auto* const bert = dynamic_cast<nn::BertSelfAttention*>(module);
            bert != nullptr && is_divided(bert->query))
            bert->random_part = heads;
    }
}

}  // namespace axle::dist
