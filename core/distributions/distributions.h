// Includes the headers of all probability distributions.
#pragma once

#include "core/distributions/discrete.h"
#include "core/distributions/distribution.h"
#include "core/distributions/gamma.h"
#include "core/distributions/independent.h"
#include "core/distributions/intervals.h"
#include "core/distributions/kl.h"
#include "core/distributions/multivariate_normal.h"
#include "core/distributions/normal.h"
