#include "core/tree/structure.h"

#include <algorithm>

namespace axle::structure {

Tree sorted_by_key(Tree map) {
    std::ranges::sort(map.entries(), {}, &Tree::Entry::key);
    return map;
}

}  // namespace axle::structure
