// Non-reentrant checkpointing. The forward pass replaces every saved tensor by a number. When the
// backward pass unpacks the first number, the checkpointed function f runs again, and the tensors
// that f saves are kept.
#include <functional>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/autograd/forward_context.h"
#include "core/ops.h"
#include "core/random.h"

namespace axle {
namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

struct Frame {
    Function f;
    std::vector<Tensor> inputs;
    GeneratorState random;
    std::optional<DType> autocast;
    std::shared_ptr<ForwardContext> context;
    std::size_t count = 0;  // number of tensors saved in the forward pass
    std::vector<Tensor> kept;

    void recompute() {
        // Restores the generator also if the function throws.
        struct Restored {
            GeneratorState now = generator_state();
            ~Restored() { set_generator_state(now); }
        } const restored;
        set_generator_state(random);
        kept.clear();
        {
            const GradMode grad_mode(true);
            const AutocastGuard precision(autocast);
            const ForwardContextGuard in_context(context);
            const SavedTensorHooksGuard hooks({.pack =
                                                   [this](const Tensor& t) {
                                                       kept.push_back(t);
                                                       return std::shared_ptr<void>();
                                                   },
                                               .unpack = {}});
            std::vector<Tensor> again;
            for (const Tensor& input : inputs) {
                Tensor t = input.detach();
                if (input.requires_grad()) t.set_requires_grad();
                again.push_back(t);
            }
            f(again);
        }
        if (kept.size() != count)
            throw UsageError(str("checkpoint: the function saved ", count,
                                 " tensors in the first run and ", kept.size(),
                                 " in the second; it must do the same in both runs"));
    }

    Tensor take(std::size_t number) {
        if (kept.empty() || !kept[number].defined()) recompute();
        return std::exchange(kept[number], {});
    }
};

}  // namespace

Tensor checkpoint(const Function& f, const std::vector<Tensor>& inputs) {
    if (!grad_enabled()) return f(inputs);
    const auto frame = std::make_shared<Frame>();
    frame->f = f;
    frame->inputs = inputs;
    frame->random = generator_state();
    frame->autocast = autocast_dtype();
    frame->context = forward_context();
    struct SavedSlot {
        std::shared_ptr<Frame> frame;
        std::size_t number;
    };
    const SavedTensorHooksGuard hooks(
        {.pack = [frame](const Tensor&) -> std::shared_ptr<void> {
             return std::make_shared<SavedSlot>(SavedSlot{frame, frame->count++});
         },
         .unpack =
             [](const std::shared_ptr<void>& value) {
                 const auto& slot = *static_cast<const SavedSlot*>(value.get());
                 return slot.frame->take(slot.number);
             }});
    return f(inputs);
}

}  // namespace axle
