// Private to dist: decides how the modules of a model are divided, and divides them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/autograd/tensor_slice.h"
#include "dist/tensor_parallel/policies.h"
#include "dist/tensor_parallel/tensor_parallel.h"

namespace axle::dist {

// A model and the division of its modules. The constructor evaluates the plan without changing the
// model, and throws all errors of tensor_parallelize() that need no communication.
class DividedModel {
  public:
    DividedModel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                 const TensorParallelOptions& options);

    // Returns lines that describe the model and its division. All ranks must have the same
    // description.
    std::string description() const;
    // Divides the model. All ranks must call this function.
    void apply();

  private:
    struct Target {
        std::string name;
        nn::Module* module;
        nn::LanguageHead* head = nullptr;  // set if the target is a product with a vocabulary
    };
    std::vector<Target> targets();
    void add(const Target& target, const TensorParallelRule& rule);
    void add_column(const Target& target, const TensorParallelRule& rule);
    void add_row(const Target& target);
    void add_embedding(const Target& target);
    void add_head(const Target& target);
    void add_sequence_parallel(const Target& target);
    void check_tied();
    void check_sequence() const;

    // Returns the parent of a module, or nullptr.
    nn::Module* parent_of(const std::string& name) const;
    // Returns the number of parts of the output features of a Linear: the number of ranks. If the
    // output consists of fewer key-value heads than ranks, returns the number of these heads; each
    // part is then copied to several ranks. Throws ValueError if the heads or features can be
    // neither divided among nor copied to the ranks.
    std::int64_t parts_of(const Target& target, const nn::Linear& layer,
                          std::int64_t segments) const;
    std::shared_ptr<SharedInput> input_of(const std::string& name);
    std::shared_ptr<ProcessGroup> copies_of(std::int64_t parts);
    void slice(const std::string& name, const Tensor& tensor, int dim, std::int64_t segments,
               std::int64_t parts, bool pads = false);
    int size() const { return division_.group->size(); }

    nn::Module& model_;
    Division division_;
    bool syncs_;
    std::map<std::string, nn::Module*> modules_;
    std::vector<std::function<void()>> actions_;
    std::map<std::string, std::shared_ptr<SharedInput>> inputs_;
    std::map<std::int64_t, std::shared_ptr<ProcessGroup>> copies_;
    std::unordered_map<const Impl*, std::pair<Tensor, autograd::SliceLayout>> slices_;
    std::vector<const Impl*> order_;  // the keys of slices_, in the order of insertion
    std::string description_;
    std::set<std::string> by_sequence_;  // names that a rule sequence_parallel selects
    std::vector<std::string> stacks_;    // the stacks of blocks in by_sequence_
    std::vector<const void*> handled_;   // modules whose rule handles a divided weight
};

}  // namespace axle::dist
