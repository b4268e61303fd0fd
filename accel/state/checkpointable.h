// State of the user's own, saved and loaded with everything else.
#pragma once

#include <concepts>

#include "core/tree/tree.h"
#include "nn/module.h"

namespace axle::inline v0::accel {

// By all processes at once, which may say in state_dict() what they have together. That of the
// process that writes is written.
struct Checkpointable {
    virtual ~Checkpointable() = default;
    virtual Tree state_dict() const = 0;
    virtual void load_state_dict(const Tree& state) = 0;
};

// What has the two functions without being one: optimizers, schedulers, loaders, a class of the
// user's.
template <class T>
concept Stateful = requires(T& object, const Tree& state) {
    { object.state_dict() } -> std::convertible_to<Tree>;
    object.load_state_dict(state);
};

template <Stateful T>
class StatefulObject : public Checkpointable {
  public:
    explicit StatefulObject(T& object) : object_(object) {}
    Tree state_dict() const override { return object_.state_dict(); }
    void load_state_dict(const Tree& state) override { object_.load_state_dict(state); }

  private:
    T& object_;
};

// What Accelerator::register_for_checkpointing takes.
template <class T>
concept Registrable =
    std::derived_from<T, Checkpointable> || std::derived_from<T, nn::Module> || Stateful<T>;

}  // namespace axle::inline v0::accel
