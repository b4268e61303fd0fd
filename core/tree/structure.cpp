#include "core/tree/structure.h"

#include <algorithm>

namespace axle::inline v0::structure {

Tree sorted_by_key(Tree map) {
    std::ranges::sort(map.entries(), {}, &Tree::Entry::key);
    return map;
}

}  // namespace axle::inline v0::structure
