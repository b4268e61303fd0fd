// Preparable: the types of objects that Accelerator::prepare() changes.
#pragma once

#include <concepts>

#include "data/loading/loader.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

template <class T>
concept Preparable = std::derived_from<T, nn::Module> || std::derived_from<T, optim::Optimizer> ||
                     std::derived_from<T, optim::Scheduler> || std::same_as<T, data::DataLoader>;

}  // namespace axle::accel
