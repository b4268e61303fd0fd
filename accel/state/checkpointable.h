// User-defined state that is saved and loaded with checkpoints.
#pragma once

#include <concepts>
#include <memory>

#include "core/tree/tree.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace axle::accel {

// An object with state that checkpoints save and load. All processes call each method at the same
// time, so the methods may call collectives. The checkpoint contains the result of state_dict() on
// the process that writes the checkpoint.
struct Checkpointable {
    virtual ~Checkpointable() = default;
    virtual Tree state_dict() const = 0;
    virtual void load_state_dict(const Tree& state) = 0;
};

// A type with state_dict() and load_state_dict(), such as a scheduler, a loader or a user-defined
// class.
template <class T>
concept Stateful = requires(T& object, const Tree& state) {
    { object.state_dict() } -> std::convertible_to<Tree>;
    object.load_state_dict(state);
};

// An adapter from a Stateful object to Checkpointable. Does not own the object.
template <Stateful T>
class StatefulObject : public Checkpointable {
  public:
    explicit StatefulObject(T& object) : object_(object) {}
    Tree state_dict() const override { return object_.state_dict(); }
    void load_state_dict(const Tree& state) override { object_.load_state_dict(state); }

  private:
    T& object_;
};

// The types that Accelerator::register_for_checkpointing accepts.
template <class T>
concept Registrable =
    std::derived_from<T, Checkpointable> || std::derived_from<T, nn::Module> || Stateful<T>;

// Return a Checkpointable that refers to the object. A module's state is its saved_state(). The
// states of modules and optimizers have whole tensors, even if several processes divide the
// tensors. state_dict() throws UsageError for a module with tensors on the meta device, such as the
// parameters of other pipeline stages.
std::shared_ptr<Checkpointable> as_checkpointable(nn::Module& module);
std::shared_ptr<Checkpointable> as_checkpointable(optim::Optimizer& optimizer);
template <Registrable T>
    requires(std::derived_from<T, Checkpointable> ||
             !(std::derived_from<T, nn::Module> || std::derived_from<T, optim::Optimizer>))
std::shared_ptr<Checkpointable> as_checkpointable(T& object) {
    if constexpr (std::derived_from<T, Checkpointable>)
        // An aliasing pointer that does not own the object.
        return std::shared_ptr<Checkpointable>(std::shared_ptr<void>(), &object);
    else
        return std::make_shared<StatefulObject<T>>(object);
}

}  // namespace axle::accel
