/* MXNet's headers and ours, and the checks of the C tests, whose CHECK is not dmlc's. */
#ifndef MXNET_CHECK_HPP
#define MXNET_CHECK_HPP

#include <genesis/mxnet.hpp>

#undef CHECK
#include "../check.h"

#endif /* MXNET_CHECK_HPP */
